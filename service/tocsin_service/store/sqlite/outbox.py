"""The outbox: one row for every (receiver, incident) that was ever worth a message.

A row counts the incident's news and what of it is settled. So a message that is late tells what is true then, several
news become one message, and nothing is forgotten over a restart.
"""

from __future__ import annotations

import json
import sqlite3

from tocsin_detectors.alerts import Alert, Incident
from tocsin_detectors.entries import RunConfig
from tocsin_service.store import Claim, Notification, Settlement
from tocsin_service.store.encoding import (
    alert_from_text,
    config_from_text,
    incident_from_text,
    told_from_text,
    told_text,
)

__all__ = ["claim", "is_due", "notify", "release_leases", "settle"]


def release_leases(connection: sqlite3.Connection) -> None:
    """Makes due what a killed service had taken and not settled. Only for a store that no other process uses."""
    connection.execute("UPDATE outbox SET leased = 0, due = 0 WHERE leased = 1")


def notify(connection: sqlite3.Connection, run_id: int, notification: Notification, now: float) -> None:
    """Adds a piece of news. A row that waits already keeps its time: it may be in the middle of a backoff."""
    connection.execute(
        "INSERT INTO outbox (receiver, incident, run_id, news, due) VALUES (?, ?, ?, 1, ?)"
        " ON CONFLICT (receiver, incident) DO UPDATE"
        " SET due = CASE WHEN news > settled THEN due ELSE excluded.due END, news = news + 1",
        (notification.receiver, notification.incident, run_id, now),
    )


def is_due(connection: sqlite3.Connection, *, receiver: str, now: float) -> bool:
    """Whether :func:`claim` would find something."""
    query = "SELECT 1 FROM outbox WHERE receiver = ? AND news > settled AND due <= ? LIMIT 1"
    return connection.execute(query, (receiver, now)).fetchone() is not None


def claim(connection: sqlite3.Connection, *, receiver: str, now: float, lease: float) -> Claim | None:
    """Takes the row that is due longest."""
    row = connection.execute(
        "SELECT incident, run_id, news, tries, told FROM outbox"
        " WHERE receiver = ? AND news > settled AND due <= ? ORDER BY due LIMIT 1",
        (receiver, now),
    ).fetchone()
    if row is None:
        return None
    incident_id, run_id, news, tries, told = row
    connection.execute(
        "UPDATE outbox SET due = ?, leased = 1 WHERE receiver = ? AND incident = ?",
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
        alerts=() if incident is None else _members(connection, incident),
        config=_config(connection, run_id),
    )


def settle(connection: sqlite3.Connection, *, settlement: Settlement) -> None:
    """Ends a claim: told and done, done without a word, or again later. News that came meanwhile are due at once."""
    claimed = settlement.claim
    where = (claimed.receiver, claimed.incident_id)
    if settlement.retry_at is not None:
        connection.execute(
            "UPDATE outbox SET leased = 0, due = ?, tries = tries + 1, error = ? WHERE receiver = ? AND incident = ?",
            (settlement.retry_at, settlement.error, *where),
        )
        return
    told = settlement.told
    text = None if told is None else told_text(told)
    connection.execute(
        "UPDATE outbox SET leased = 0, due = 0, tries = 0, settled = ?, told = coalesce(?, told), error = ?"
        " WHERE receiver = ? AND incident = ?",
        (claimed.news, text, settlement.error, *where),
    )


def _incident(connection: sqlite3.Connection, incident_id: str) -> Incident | None:
    row = connection.execute("SELECT payload FROM incidents WHERE id = ?", (incident_id,)).fetchone()
    return None if row is None else incident_from_text(row[0])


def _members(connection: sqlite3.Connection, incident: Incident) -> tuple[Alert, ...]:
    rows = connection.execute(
        "SELECT payload FROM json_each(?) JOIN alerts ON alerts.id = json_each.value ORDER BY json_each.key",
        (json.dumps(incident.members),),
    )
    return tuple(alert_from_text(payload) for (payload,) in rows)


def _config(connection: sqlite3.Connection, run_id: int) -> RunConfig:
    (text,) = connection.execute("SELECT coalesce(view, given) FROM runs WHERE id = ?", (run_id,)).fetchone()
    return config_from_text(text)
