"""One step of a run's fold as the arguments of the script that stores it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import redis

from tocsin_detectors.alerts import State
from tocsin_service.store import Commit, Outcome, StoreUnavailable
from tocsin_service.store.encoding import (
    KINDS,
    Subject,
    config_text,
    encode_subject,
    state_text,
    subject_from_text,
    subject_of,
)
from tocsin_service.store.redis import keys
from tocsin_service.store.redis.connection import Argument, Connection
from tocsin_service.store.redis.scripts import COMMIT
from tocsin_service.store.trimming import superseded

__all__ = ["commit_all"]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What a change of rules does to what was found by others.

    Attributes:
        forgotten: kind and id of the alerts and incidents that a fold of the log can find again.
        ended: those that it can't, in their last form.
    """

    forgotten: Sequence[tuple[str, str]] = ()
    ended: Sequence[Subject] = ()


def commit_all(connection: Connection, changes: Sequence[tuple[str, Commit]]) -> list[Outcome]:
    """Stores them, each for itself, in one round trip; see the contract."""
    outcomes: list[Outcome] = [False] * len(changes)
    calls: dict[int, list[Argument]] = {}
    for number, (run, change) in enumerate(changes):
        try:
            calls[number] = _arguments(run, change, rewritten(connection, run) if change.rewrite else Rewritten())
        except Exception as error:  # noqa: BLE001 - of this change alone
            outcomes[number] = error
    try:
        answers = connection.run_all(COMMIT, list(calls.values()))
    except StoreUnavailable as error:
        answers = [error] * len(calls)
    for number, answer in zip(calls, answers, strict=True):
        if isinstance(answer, redis.RedisError):
            outcomes[number] = StoreUnavailable(f"Redis can't store this now: {answer}")
        else:
            outcomes[number] = answer if isinstance(answer, Exception) else bool(answer)
    return outcomes


def _arguments(run: str, change: Commit, rewritten: Rewritten) -> list[Argument]:
    """Arguments of the script ``commit``."""
    position = keys.entry_id(change.position)
    causes = map(keys.entry_id, change.causes) if change.causes else repeat(position, len(change.events))
    events = [
        *(_changed("", one, keys.START) for one in rewritten.ended),
        *(_changed(one.id, subject_of(one), cause) for one, cause in zip(change.events, causes, strict=True)),
    ]
    return [
        run,
        keys.entry_id(change.expected),
        position,
        change.version,
        "" if change.attempt is None else change.attempt,
        change.error or "",
        "" if change.config is None else config_text(change.config),
        "" if change.state is None else state_text(change.state),
        repr(float(change.time)),
        len(rewritten.forgotten),
        *chain.from_iterable(rewritten.forgotten),
        len(events),
        *chain.from_iterable(events),
        len(change.notifications),
        *chain.from_iterable((one.receiver, one.incident, one.event) for one in change.notifications),
    ]


def _changed(event: str, subject: Subject, cause: str) -> tuple[str, ...]:
    return (event, subject.kind, subject.id, subject.state, subject.severity, subject.text, cause)


def rewritten(connection: Connection, run: str) -> Rewritten:
    """What becomes of the run's alerts and incidents when it has been folded anew; see the contract."""
    (base, step), *found = connection.ask_all(
        [
            ("HMGET", keys.of(run, "run"), "base", "step"),
            *(("HGETALL", keys.of(run, kind)) for kind in KINDS),
        ]
    )
    kept = keys.position(base or keys.START)
    forgotten: list[tuple[str, str]] = []
    ended: list[Subject] = []
    for kind, subjects in zip(KINDS, found, strict=True):
        for name, known in subjects.items():
            slot, _, began = known.split(" ")
            if keys.position(began) > kept:
                forgotten.append((kind, name))
            elif slot.startswith(State.FIRING):
                text = connection.ask("HGET", f"tocsin:{kind}", name)
                subject = superseded(subject_from_text(kind, text), None if step is None else int(step))
                ended.append(encode_subject(subject))
    return Rewritten(forgotten, ended)
