"""The outbox: one row for every (receiver, incident) that was ever worth a message.

A row counts the incident's news and what of it is settled. So a message that is late tells what is true then, several
news become one message, and nothing is forgotten over a restart.
"""

from __future__ import annotations

import json
import sqlite3

from tocsin_detectors.alerts import Alert, Incident
from tocsin_detectors.entries import RunConfig
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.store import Claim, Notification, Settlement
from tocsin_service.store.encoding import (
    acknowledgement_from_text,
    alert_from_text,
    config_from_text,
    incident_from_text,
    told_from_text,
    told_text,
)

__all__ = ["claim", "is_due", "members", "notify", "notify_told", "release_leases", "settle"]


def release_leases(connection: sqlite3.Connection) -> None:
    """Makes due what a killed service had taken and not settled. Only for a store that no other process uses."""
    connection.execute("UPDATE outbox SET due = 0 WHERE leased = 1")


# A row that waits keeps its time, as a sender has it or it is backing off; but not if it is only put off.
_NEWS = "due = CASE WHEN news > settled AND NOT postponed THEN due ELSE :now END, postponed = 0, news = news + 1"


def notify(connection: sqlite3.Connection, run_id: int, notification: Notification, now: float) -> None:
    """Adds a piece of news."""
    connection.execute(
        "INSERT INTO outbox (receiver, incident, run_id, news, due) VALUES (:receiver, :incident, :run_id, 1, :now)"  # noqa: S608 - one of ours
        f" ON CONFLICT (receiver, incident) DO UPDATE SET {_NEWS}",
        {"receiver": notification.receiver, "incident": notification.incident, "run_id": run_id, "now": now},
    )


def notify_told(connection: sqlite3.Connection, run_id: int, incident: str, now: float) -> None:
    """Adds a piece of news for everybody who was told of the incident."""
    connection.execute(
        f"UPDATE outbox SET {_NEWS} WHERE run_id = :run_id AND incident = :incident AND told IS NOT NULL",  # noqa: S608 - as above
        {"run_id": run_id, "incident": incident, "now": now},
    )


def is_due(connection: sqlite3.Connection, *, receiver: str, now: float) -> bool:
    """Whether :func:`claim` would find something."""
    query = "SELECT 1 FROM outbox WHERE receiver = ? AND news > settled AND due <= ? LIMIT 1"
    return connection.execute(query, (receiver, now)).fetchone() is not None


def claim(connection: sqlite3.Connection, *, receiver: str, now: float, lease: float) -> Claim | None:
    """Takes the row that is due longest."""
    row = connection.execute(
        "SELECT incident, run_id, news, tries, told, error, leased FROM outbox"
        " WHERE receiver = ? AND news > settled AND due <= ? ORDER BY due LIMIT 1",
        (receiver, now),
    ).fetchone()
    if row is None:
        return None
    incident_id, run_id, news, tries, told, error, leased = row
    connection.execute(
        "UPDATE outbox SET due = ?, leased = 1, postponed = 0 WHERE receiver = ? AND incident = ?",
        (now + lease, receiver, incident_id),
    )
    incident = _incident(connection, incident_id)
    return Claim(
        receiver=receiver,
        incident_id=incident_id,
        news=news,
        tries=tries,
        told=None if told is None else told_from_text(told),
        incident=incident,
        alerts=() if incident is None else members(connection, incident),
        config=_config(connection, run_id),
        acknowledged=_acknowledgement(connection, incident_id),
        error=error,
        interrupted=bool(leased),
    )


def settle(connection: sqlite3.Connection, *, settlement: Settlement) -> None:
    """Ends a claim; see :class:`tocsin_service.store.Settlement`."""
    claimed, told, retry_at, error = settlement.claim, settlement.told, settlement.retry_at, settlement.error or None
    where = (claimed.receiver, claimed.incident_id)
    row = connection.execute(
        "SELECT news, settled, tries, error FROM outbox WHERE receiver = ? AND incident = ?", where
    ).fetchone()
    if row is None:
        return
    news, settled, tries, last_error = row
    if not settled < claimed.news <= news:
        return  # somebody else has settled it, or the run has begun anew
    if error is not None:
        tries, last_error = tries + 1, error
    elif told is not None or retry_at is None:
        tries, last_error = 0, None
    waits = retry_at is not None and (error is not None or news == claimed.news)
    if told is not None and waits:
        news += 1  # a reminder is a piece of news that comes later
    if told is not None or retry_at is None:
        settled = claimed.news
    connection.execute(
        "UPDATE outbox SET leased = 0, news = ?, settled = ?, due = ?, postponed = ?, tries = ?, error = ?,"
        " told = coalesce(?, told) WHERE receiver = ? AND incident = ?",
        (
            news,
            settled,
            retry_at if waits else 0.0,
            waits and error is None,
            tries,
            last_error,
            None if told is None else told_text(told),
            *where,
        ),
    )


def _incident(connection: sqlite3.Connection, incident_id: str) -> Incident | None:
    row = connection.execute("SELECT payload FROM incidents WHERE id = ?", (incident_id,)).fetchone()
    return None if row is None else incident_from_text(row[0])


def members(connection: sqlite3.Connection, incident: Incident) -> tuple[Alert, ...]:
    """The incident's alerts in order of onset."""
    rows = connection.execute(
        "SELECT payload FROM json_each(?) JOIN alerts ON alerts.id = json_each.value ORDER BY json_each.key",
        (json.dumps(incident.members),),
    )
    return tuple(alert_from_text(payload) for (payload,) in rows)


def _config(connection: sqlite3.Connection, run_id: int) -> RunConfig:
    (text,) = connection.execute("SELECT coalesce(view, given) FROM runs WHERE id = ?", (run_id,)).fetchone()
    return config_from_text(text)


def _acknowledgement(connection: sqlite3.Connection, incident_id: str) -> Acknowledgement | None:
    row = connection.execute("SELECT payload FROM acknowledgements WHERE incident = ?", (incident_id,)).fetchone()
    return None if row is None else acknowledgement_from_text(row[0])
