"""``tocsin samples``: what the model wrote when an alert began, or at a step, on a terminal.

What comes from a model may hold anything: every text is made printable, line by line, before it is shown.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from tocsin._settings import settings
from tocsin._transport import Address, Transport, Unreachable
from tocsin_service.report import printable

__all__ = ["SamplesError", "alert_lines", "fetch", "step_lines"]

WIDTH = 110
SECONDS = 60.0


class SamplesError(RuntimeError):
    """The service can't be asked, or refuses."""


def fetch(
    run: str, alert: str | None, *, url: str | None, token: str | None, query: Mapping[str, object]
) -> dict[str, Any]:
    """The service's answer: the samples of an alert, or the rows of a step.

    Args:
        run: its id.
        alert: id of an alert; None: rows of what ``query`` names.
        url: address of the service; None: TOCSIN_URL.
        token: bearer token; None: TOCSIN_TOKEN.
        query: parameters of the request; None values are left out.

    Raises:
        SamplesError: with what the service says.
    """
    known = settings(run, url, None, token, {})
    if known.faulty or not isinstance(known.address, Address):
        raise SamplesError("samples come from a service: give --url http://HOST:PORT")
    where = "rollouts" if alert is None else f"alerts/{quote(alert, safe='')}/samples"
    words = urlencode({name: value for name, value in query.items() if value is not None})
    transport = Transport(known.address, SECONDS)
    try:
        answer = transport.request("GET", f"{known.path}/{where}?{words}", None, {"User-Agent": "tocsin"})
    except Unreachable as error:
        raise SamplesError(f"{known.address} can't be reached: {error}") from None
    finally:
        transport.close()
    try:
        body: dict[str, Any] = json.loads(answer.body)
    except ValueError:
        body = {}
    if answer.status != 200:
        raise SamplesError(printable(body.get("error") or answer.told()))
    return body


def alert_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The samples of an alert: each kind of extreme at the onset, and below it before the onset."""
    for name, words in (("healthy", "the last step before"), ("onset", "the onset")):
        yield _summary(words, found[name])
    for kind in found["evidence"]:
        yield ""
        yield f"== {printable(kind['kind'])}"
        for name in ("onset", "healthy"):
            if found[name] is not None:
                yield f"-- step {found[name]['step']} ({name})"
                yield from step_lines(kind[name])


def step_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Rows one below the other: the numbers in one line, then prompt and response."""
    for row in rows:
        numbers = [f"reward {_number(row['reward'])}"]
        numbers += [f"{printable(name)} {_number(score)}" for name, score in (row["scores"] or {}).items()]
        if row["advantage"] is not None:
            numbers.append(f"advantage {_number(row['advantage'])}")
        tokens = f"{row['length']} tokens, " if row["length"] is not None else ""
        numbers.append(f"{tokens}{row['chars']} characters, {row['repetition']:.0%} repeated")
        if row["finish_reason"]:
            numbers.append(printable(row["finish_reason"]))
        yield f"* step {row['step']}, row {row['row']}: {'; '.join(numbers)}"
        for label, name in (("prompt", "prompt"), ("truth", "ground_truth"), ("answer", "response")):
            if row[name] is not None:
                yield from _wrapped(label, row[name])


def _summary(words: str, summary: Mapping[str, Any] | None) -> str:
    if summary is None:
        return f"{words}: nothing is kept"
    parts = [
        f"{summary['rows']} rows",
        f"reward {_number(summary['reward_mean'])}",
        f"{_number(summary['chars_mean'])} characters",
        f"repetition {_number(summary['repetition_mean'])}",
    ]
    return f"{words}: step {summary['step']}: {', '.join(parts)}"


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else "-" if value is None else printable(value)


def _wrapped(label: str, text: str) -> Iterator[str]:
    """A text's lines, none wider than the terminal, behind a bar that no text can take away."""
    first = f"  {label:>6} | "
    for line in text.split("\n") or [""]:
        for piece in textwrap.wrap(printable(line), WIDTH - len(first), drop_whitespace=False) or [""]:
            yield first + piece
            first = f"  {'':>6} | "
