"""Runs at a glance, and lists of alerts and incidents: reads that take several steps."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from tocsin_detectors.alerts import Alert, Incident, Severity, State
from tocsin_detectors.entries import RunConfig
from tocsin_service.store import RunSummary
from tocsin_service.store.encoding import Kind, alert_from_text, config_from_text
from tocsin_service.store.redis import keys
from tocsin_service.store.redis.configs import config_from_hash
from tocsin_service.store.redis.connection import Command, Connection

__all__ = ["config_of", "listed", "members", "summaries"]

PAGE = 500  # runs, payloads: what one command or one answer is about


def summaries(connection: Connection, runs: Sequence[str]) -> list[RunSummary]:
    """The given runs, without those that are unknown."""
    commands: list[Command] = []
    for run in runs:
        commands += [("HGETALL", keys.of(run, "run")), ("HGETALL", keys.of(run, "config")), ("XLEN", keys.log(run))]
        commands += [("ZCARD", keys.of(run, f"alerts:{State.FIRING}:{severity}")) for severity in Severity]
    answers = iter(connection.ask_all(commands))
    found = []
    for run in runs:
        main, config, length, *firing = (next(answers) for _ in range(3 + len(Severity)))
        if main:
            counts = {str(severity): count for severity, count in zip(Severity, firing, strict=True) if count}
            found.append(_summary(run, main, config_from_hash(config), length, counts))
    return found


def _summary(run: str, main: Mapping[str, str], given: RunConfig, length: int, firing: Mapping[str, int]) -> RunSummary:
    return RunSummary(
        run=run,
        created=float(main["created"]),
        last_seen=float(main["last_seen"]) if "last_seen" in main else None,
        step=int(main["step"]) if "step" in main else None,
        vectors=int(main.get("vectors", 0)),
        attempt=int(main["attempt"]) if "attempt" in main else None,
        firing=firing,
        config=config_from_text(main["view"]) if "view" in main else given,
        pending=max(0, length - int(main.get("folded", 0))),
        error=main.get("error"),
    )


def config_of(connection: Connection, run: str) -> RunConfig:
    """The run's configuration: the engine's view, or as given where that is newer."""
    view, given = connection.ask_all([("HGET", keys.of(run, "run"), "view"), ("HGETALL", keys.of(run, "config"))])
    return config_from_hash(given) if view is None else config_from_text(view)


def listed(
    connection: Connection,
    kind: Kind,
    run: str | None,
    state: State | None,
    severity: Severity | None,
    limit: int,
) -> list[str]:
    """The texts of alerts or incidents, those that began last first."""
    states = State if state is None else (state,)
    severities = Severity if severity is None else (severity,)
    prefix = "tocsin:" if run is None else keys.of(run, "")
    indexes = [f"{prefix}{kind}:{one}:{other}" for one, other in product(states, severities)]
    answers = connection.ask_all([("ZRANGE", index, 0, limit - 1, "REV", "WITHSCORES") for index in indexes])
    numbered = ((int(number), one) for answer in answers for one, number in _pairs(answer))
    ids = [one for _, one in heapq.nlargest(limit, numbered)]
    texts = connection.ask_all([("HMGET", f"tocsin:{kind}", *page) for page in _pages(ids)])
    return [text for page in texts for text in page if text is not None]


def members(connection: Connection, incident: Incident) -> tuple[Alert, ...]:
    """The incident's alerts in order of onset."""
    texts = connection.ask("HMGET", "tocsin:alerts", *incident.members) if incident.members else []
    return tuple(alert_from_text(text) for text in texts if text is not None)


def _pairs(flat: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _pages(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), PAGE):
        yield items[start : start + PAGE]
