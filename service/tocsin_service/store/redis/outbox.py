"""The outbox: one row for every (receiver, incident) that was ever worth a message.

The rows that wait lie in one sorted set per receiver, by the time at which they are due; those that are only put off
are in another besides. A claim moves its row to the end of the lease: so what a sender took and didn't settle comes
back by itself, whichever process it was.
"""

from __future__ import annotations

from tocsin_service.store import Claim, Settlement
from tocsin_service.store.encoding import acknowledgement_from_text, incident_from_text, told_from_text, told_text
from tocsin_service.store.redis import keys
from tocsin_service.store.redis.connection import Connection
from tocsin_service.store.redis.scripts import CLAIM, SETTLE
from tocsin_service.store.redis.summaries import config_of, members

__all__ = ["claim", "next_due", "pending", "settle"]


def claim(connection: Connection, receiver: str, now: float, lease: float) -> Claim | None:
    """Takes the row that is due longest."""
    row = connection.run(CLAIM, receiver, repr(float(now)), repr(float(now + lease)))
    if row is None:
        return None
    incident_id, run, news, tries, told, error, text, acknowledged, taken = row
    incident = None if text is None else incident_from_text(text)
    return Claim(
        receiver=receiver,
        incident_id=incident_id,
        news=int(news),
        tries=int(tries or 0),
        told=None if told is None else told_from_text(told),
        incident=incident,
        alerts=() if incident is None else members(connection, incident),
        config=config_of(connection, run),
        acknowledged=None if acknowledged is None else acknowledgement_from_text(acknowledged),
        error=error or None,
        interrupted=taken is not None,
    )


def settle(connection: Connection, settlement: Settlement) -> None:
    """Ends a claim; see :class:`tocsin_service.store.Settlement`."""
    claimed = settlement.claim
    connection.run(
        SETTLE,
        claimed.receiver,
        claimed.incident_id,
        claimed.news,
        "" if settlement.told is None else told_text(settlement.told),
        settlement.error or "",
        "" if settlement.retry_at is None else repr(float(settlement.retry_at)),
    )


def next_due(connection: Connection, receiver: str) -> float | None:
    """When the next row is due."""
    found = connection.ask("ZRANGE", f"tocsin:due:{receiver}", 0, 0, "WITHSCORES")
    return float(found[1]) if found else None


def pending(connection: Connection) -> int:
    """The number of rows that wait and are not put off."""
    receivers = connection.ask("SMEMBERS", keys.RECEIVERS)
    waiting = connection.ask_all([("ZCARD", f"tocsin:due:{receiver}") for receiver in receivers])
    put_off = connection.ask_all([("ZCARD", f"tocsin:postponed:{receiver}") for receiver in receivers])
    return max(0, sum(map(int, waiting)) - sum(map(int, put_off)))
