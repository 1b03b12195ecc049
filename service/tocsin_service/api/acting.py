"""What people do about alerts: it takes effect, the deliveries look again, and the audit log says who did it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request

from tocsin_detectors.entries import Rebaseline
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.api.context import Context, append
from tocsin_service.api.errors import ApiError
from tocsin_service.api.guard import ACTOR, LINK, LOCAL
from tocsin_service.audit import Act
from tocsin_service.silences import MOST_SILENCES, Silence, silence_to_json
from tocsin_service.store import Appended, Record, StoreUnavailable

__all__ = ["LINK", "Actor", "acknowledge", "add_silence", "expire_silence", "rebaseline", "write_down"]

logger = logging.getLogger(__name__)

LONGEST_DETAIL = 4000  # characters of JSON; the audit log keeps many acts


def _actor(request: Request) -> str:
    return str(request.scope.get(ACTOR, LOCAL))


Actor = Annotated[str, Depends(_actor)]


async def acknowledge(context: Context, actor: str, acknowledgement: Acknowledgement) -> None:
    """Says that somebody looks after an incident.

    Raises:
        ApiError: 404 the run has no such incident.
    """
    if not await asyncio.to_thread(context.store.acknowledge, acknowledgement):
        raise ApiError(404, "no such incident in this run", "unknown")
    context.notified()
    detail = {"run": acknowledgement.run, "author": acknowledgement.author, "comment": acknowledgement.comment}
    await write_down(context, actor, "acknowledge", acknowledgement.incident, detail)


async def add_silence(context: Context, actor: str, silence: Silence, action: str = "silence") -> None:
    """Keeps a silence, in place of one of the same id.

    Raises:
        ApiError: 429 there are as many silences as may be.
    """
    await asyncio.to_thread(_add_silence, context, silence)
    context.notified()
    await write_down(context, actor, action, silence.id, silence_to_json(silence))


async def expire_silence(context: Context, actor: str, silence: str) -> Silence:
    """Ends a silence; what it is now. One that is over stays as it is.

    Raises:
        ApiError: 404 there is none of that id.
    """
    found = await asyncio.to_thread(_expire_silence, context, silence)
    context.notified()
    await write_down(context, actor, "unsilence", silence, {})
    return found


async def rebaseline(context: Context, actor: str, run: str, entries: Sequence[Rebaseline]) -> Appended:
    """Makes what is now the new normal of a run, or of some of its metrics."""
    appended = await append(context, run, [Record(entry) for entry in entries])
    detail = {"metrics": [entry.metric for entry in entries], "note": entries[0].note}
    await write_down(context, actor, "rebaseline", run, detail)
    return appended


async def write_down(context: Context, actor: str, action: str, subject: str, detail: Mapping[str, Any]) -> None:
    """Adds to the audit log, and to the process's.

    Raises:
        ApiError: 503 the audit log can't be written; what was done stays done, and can be done again.
    """
    logger.info("%s by %s: %s", action, json.dumps(actor), json.dumps(subject))  # as JSON it stays on one line
    act = Act(context.clock(), actor, action, subject, _short(detail))
    try:
        await asyncio.to_thread(context.store.record, act)
    except StoreUnavailable as error:
        text = f"it is done, but could not be added to the audit log: {error}; send it again later"
        raise ApiError(503, text, "store") from None


def _short(detail: Mapping[str, Any]) -> Mapping[str, Any]:
    return detail if len(json.dumps(detail)) <= LONGEST_DETAIL else {"too long": sorted(detail)}


def _add_silence(context: Context, silence: Silence) -> None:
    now = context.clock()
    lasting = [one for one in context.store.silences() if one.ends > now and one.id != silence.id]
    if len(lasting) >= MOST_SILENCES:
        raise ApiError(429, f"there are {MOST_SILENCES} silences; expire some, or match more with one", "silences")
    context.store.add_silence(silence)


def _expire_silence(context: Context, silence: str) -> Silence:
    known = context.store.expire_silence(silence, context.clock())
    found = next((one for one in context.store.silences() if one.id == silence), None)
    if not known or found is None:
        raise ApiError(404, "there is no silence of that id", "unknown")
    return found
