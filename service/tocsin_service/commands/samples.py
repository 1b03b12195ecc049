"""``tocsin samples``: what the model wrote when an alert began, or at a step, on a terminal.

What comes from a model may hold anything: every text is made printable, line by line, before it is shown.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tocsin_service.commands.operating import asking
from tocsin_service.commands.remote import Remote, path
from tocsin_service.terminal import CannotError, printable, say

__all__ = ["add_command", "alert_lines", "step_lines"]

WIDTH = 110
SORTS = ("row", "reward", "advantage", "length", "chars", "repetition")


def add_command(commands: Any) -> None:
    """Adds it to the sub-parsers of the command line."""
    told = "show what the model wrote when an alert began, or at a step"
    samples = asking(commands, "samples", told, _samples)
    samples.add_argument("run", metavar="RUN")
    samples.add_argument("alert", nargs="?", metavar="ALERT", help="id of an alert of the run")
    samples.add_argument("--step", type=int, help="a step instead of an alert")
    samples.add_argument("--sort", choices=SORTS, help="order of a step's rows")
    samples.add_argument("--desc", action="store_true", help="the greatest first")
    samples.add_argument("--limit", type=int, default=3, help="samples of each kind (default 3)")
    samples.add_argument("--text", type=int, default=1000, help="characters shown of each text (default 1000)")


def _samples(arguments: argparse.Namespace) -> int:
    if (arguments.alert is None) == (arguments.step is None):
        raise CannotError("name an alert of the run, or a step: tocsin samples RUN ALERT, tocsin samples RUN --step N")
    query = {"limit": arguments.limit, "text": arguments.text}
    where = path("runs", arguments.run, "rollouts")
    if arguments.alert is None:
        query |= {"step": arguments.step, "sort": arguments.sort, "order": "desc" if arguments.desc else "asc"}
    else:
        where = path("runs", arguments.run, "alerts", arguments.alert, "samples")
    found = Remote(arguments).ask("GET", where, query=query)
    if arguments.json:
        say(json.dumps(found, allow_nan=False))
    else:
        say(*(step_lines(found["rows"]) if arguments.alert is None else alert_lines(found)))
    return 0


def alert_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The samples of an alert: each kind of extreme at the onset, and below it before the onset."""

    def step_of(summary: Mapping[str, Any]) -> str:
        return f"step {summary['step']}" + (f" of attempt {summary['attempt']}" if found["attempt"] else "")

    for name, words in (("healthy", "the last step before"), ("onset", "the onset")):
        side = found[name]
        yield f"{words}: nothing is kept" if side is None else f"{words}: {step_of(side)}: {_summary(side)}"
    for kind in found["evidence"]:
        yield ""
        yield f"== {printable(kind['kind'])}"
        for name in ("onset", "healthy"):
            if found[name] is not None:
                yield f"-- {step_of(found[name])} ({name})"
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


def _summary(summary: Mapping[str, Any]) -> str:
    parts = [
        f"{summary['rows']} rows",
        f"reward {_number(summary['reward_mean'])}",
        f"{_number(summary['chars_mean'])} characters",
        f"repetition {_number(summary['repetition_mean'])}",
    ]
    return ", ".join(parts)


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else "-" if value is None else printable(value)


def _wrapped(label: str, text: str) -> Iterator[str]:
    """A text's lines, none wider than the terminal, behind a bar that no text can take away."""
    first = f"  {label:>6} | "
    for line in text.split("\n") or [""]:
        for piece in textwrap.wrap(printable(line), WIDTH - len(first), drop_whitespace=False) or [""]:
            yield first + piece
            first = f"  {'':>6} | "
