"""The commands that ask a running service, and tell it what people do about alerts."""

from __future__ import annotations

import argparse
import getpass
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from tocsin_service.commands.remote import DEFAULT_URL, Remote, path
from tocsin_service.terminal import CannotError, say, table

__all__ = ["LANGUAGES", "add_commands", "asking"]

LANGUAGES = ("en", "zh")  # those of tocsin_detectors.texts, which needs an extra
SEVERITIES = ("info", "warning", "critical")
MOST = 10_000  # in one answer
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def add_commands(commands: Any) -> None:
    """Adds them to the sub-parsers of the command line."""
    for name, plural, command in (("alerts", "alerts", _alerts), ("incidents", "incidents", _incidents)):
        listing = asking(commands, name, f"list the {plural} that fire", command)
        listing.add_argument("--run", help="of this run alone")
        listing.add_argument("--severity", choices=SEVERITIES, help="of this severity alone")
        listing.add_argument("--all", action="store_true", help="those too that are over")
        listing.add_argument("--lang", choices=LANGUAGES, help="language of the texts (default en)")

    acknowledge = asking(commands, "acknowledge", "say that you look after an incident", _acknowledge)
    acknowledge.add_argument("run", metavar="RUN")
    acknowledge.add_argument("incident", metavar="INCIDENT", help="its id, as `tocsin incidents` shows it")
    _add_author(acknowledge, why=False)

    mute = asking(commands, "mute", "let nobody be told of a run for a while", _mute)
    mute.add_argument("run", metavar="RUN")
    mute.add_argument("--for", dest="seconds", type=duration, required=True, metavar="TIME", help="e.g. 90m, 4h, 1d12h")
    _add_author(mute, why=True)

    rebaseline = asking(commands, "rebaseline", "accept what is now as the new normal of a run", _rebaseline)
    rebaseline.add_argument("run", metavar="RUN")
    rebaseline.add_argument("--metric", help="this one alone (default: all metrics)")
    _add_author(rebaseline, why=False)

    audit = asking(commands, "audit", "list who did what, latest first", _audit)
    audit.add_argument("--limit", type=int, default=50, help="how many (default 50)")
    _add_silence(commands)


def _add_silence(commands: Any) -> None:
    silence = commands.add_parser("silence", help="let nobody be told of what matches for a while")
    acts = silence.add_subparsers(required=True, metavar="add|list|expire")
    add = asking(
        acts, "add", "make a silence; all that is given has to match; * is any text, ? any character", _silence
    )
    add.add_argument("--run", metavar="PATTERN", help="of run ids")
    add.add_argument("--rule", metavar="PATTERN", help="of rule names")
    add.add_argument("--severity", choices=SEVERITIES, help="this one alone")
    add.add_argument(
        "--label", action="append", default=[], metavar="NAME=PATTERN", help="of a run's label; repeatable"
    )
    add.add_argument("--all", action="store_true", help="match everything")
    add.add_argument("--from", dest="starts", type=moment, metavar="WHEN", help="e.g. 2030-01-31T22:00 (default: now)")
    ends = add.add_mutually_exclusive_group(required=True)
    ends.add_argument("--for", dest="seconds", type=duration, metavar="TIME", help="e.g. 90m, 4h, 1d12h")
    ends.add_argument("--until", dest="ends", type=moment, metavar="WHEN", help="e.g. 2030-02-01T08:00")
    add.add_argument("--id", help="of the silence, which replaces one of the same id (default: a new one)")
    _add_author(add, why=True)
    listing = asking(acts, "list", "list silences", _silences)
    listing.add_argument("--all", action="store_true", help="those too that are over")
    asking(acts, "expire", "end a silence now", _expire).add_argument("id", metavar="ID")


def asking(
    commands: Any, name: str, told: str, command: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Adds a command that asks a running service; its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=told)
    parser.add_argument("--url", help=f"address of the service (default: TOCSIN_URL, else {DEFAULT_URL})")
    parser.add_argument("--token-file", help="file with the bearer token (default: TOCSIN_TOKEN)")
    parser.add_argument("--json", action="store_true", help="print the service's answer as it is")
    parser.set_defaults(command=partial(_run, command))
    return parser


def _run(command: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    try:
        return command(arguments)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise CannotError(
            f"the answer can't be understood ({type(error).__name__}); is the service of another version?"
        ) from error


def _add_author(parser: argparse.ArgumentParser, *, why: bool) -> None:
    parser.add_argument("--comment", required=why, default="", help="why")
    parser.add_argument("--author", help="who wants it (default: your login name)")


def duration(text: str) -> float:
    """Seconds in ``text``, such as 90m, 4h or 1d12h.

    Raises:
        ArgumentTypeError: it is no such text.
    """
    parts = re.fullmatch(r"(?:\d+(?:\.\d+)?[smhdw])+", text)
    if parts is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write e.g. 90m, 4h or 1d12h")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smhdw])", text))


def moment(text: str) -> float:
    """Unix time of a date and time in ISO format; without a zone it is this machine's time.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write e.g. 2030-01-31T22:00") from None


def _author(arguments: argparse.Namespace) -> str:
    if arguments.author:
        return str(arguments.author)
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # there is no such user
        raise CannotError("who are you? give --author NAME") from None


def _told(arguments: argparse.Namespace, answer: Any, *lines: str) -> int:
    """Prints the answer if JSON is wanted, else the lines."""
    say(*((json.dumps(answer),) if arguments.json else lines))
    return 0


def _list(arguments: argparse.Namespace, kind: str) -> Any:
    where = path(kind) if arguments.run is None else path("runs", arguments.run, kind)
    # A run's list shows everything unless a state is asked for, and that of all runs what fires: say it always.
    queries = [{"state": state} for state in (("firing", "resolved") if arguments.all else ("firing",))]
    common = {"severity": arguments.severity, "lang": arguments.lang, "limit": MOST}
    found = [one for query in queries for one in Remote(arguments).ask("GET", where, query=query | common)[kind]]
    return {kind: found}


def _alerts(arguments: argparse.Namespace) -> int:
    answer = _list(arguments, "alerts")
    rows = [
        (one["severity"], one["run"], one["rule"], one["source"], one["onset_step"], one["state"], _attention(one))
        for one in answer["alerts"]
    ]
    head = ("SEVERITY", "RUN", "RULE", "METRIC", "SINCE", "STATE", "ATTENTION")
    return _told(arguments, answer, *(table(head, rows) if rows else ("no alerts",)))


def _incidents(arguments: argparse.Namespace) -> int:
    answer = _list(arguments, "incidents")
    rows = [
        (one["id"], one["severity"], one["run"], one["onset_step"], one["state"], _attention(one), one["title"])
        for one in answer["incidents"]
    ]
    head = ("INCIDENT", "SEVERITY", "RUN", "SINCE", "STATE", "ATTENTION", "TITLE")
    return _told(arguments, answer, *(table(head, rows, whole=("INCIDENT",)) if rows else ("no incidents",)))


def _attention(one: Mapping[str, Any]) -> str:
    parts = []
    if one["acknowledged"] is not None:
        parts.append(f"{one['acknowledged']['author']} looks after it")
    if one["silenced"] is not None:
        parts.append(f"silent until {_time(one['silenced']['ends'])}")
    return ", ".join(parts) or "-"


def _acknowledge(arguments: argparse.Namespace) -> int:
    author = _author(arguments)
    where = path("runs", arguments.run, "incidents", arguments.incident, "acknowledge")
    answer = Remote(arguments).ask("POST", where, {"author": author, "comment": arguments.comment})
    return _told(arguments, answer, f"{answer['id']}: {answer['title']}", f"{author} looks after it")


def _mute(arguments: argparse.Namespace) -> int:
    body = {"hours": arguments.seconds / 3600, "author": _author(arguments), "comment": arguments.comment}
    answer = Remote(arguments).ask("POST", path("runs", arguments.run, "mute"), body)
    return _told(arguments, answer, _silence_line(answer))


def _rebaseline(arguments: argparse.Namespace) -> int:
    body = {"metric": arguments.metric, "note": arguments.comment, "author": _author(arguments)}
    answer = Remote(arguments).ask("POST", path("runs", arguments.run, "rebaseline"), body)
    what = arguments.metric or "every metric"
    return _told(arguments, answer, f"{arguments.run}: what is now is the new normal of {what}")


def _silence(arguments: argparse.Namespace) -> int:
    labels = {}
    for label in arguments.label:
        name, equals, pattern = label.partition("=")
        if not equals:
            raise CannotError(f"--label {label}: write NAME=PATTERN")
        labels[name] = pattern
    matchers = {"run": arguments.run, "rule": arguments.rule, "severity": arguments.severity, "labels": labels}
    body: dict[str, Any] = {"matchers": matchers, "author": _author(arguments), "comment": arguments.comment}
    given = {"id": arguments.id, "starts": arguments.starts, "ends": arguments.ends}
    body |= {name: value for name, value in given.items() if value is not None}
    if arguments.seconds is not None:
        body["hours"] = arguments.seconds / 3600
    if arguments.all:
        body["all"] = True
    answer = Remote(arguments).ask("POST", path("silences"), body)
    return _told(arguments, answer, _silence_line(answer))


def _silences(arguments: argparse.Namespace) -> int:
    answer = Remote(arguments).ask("GET", path("silences"))
    if not arguments.all:
        answer["silences"] = [one for one in answer["silences"] if one["state"] != "expired"]
    rows = [
        (one["id"], one["state"], _time(one["starts"]), _time(one["ends"]), one["author"], _meant(one), one["comment"])
        for one in answer["silences"]
    ]
    head = ("SILENCE", "STATE", "STARTS", "ENDS", "AUTHOR", "MATCHES", "COMMENT")
    return _told(arguments, answer, *(table(head, rows, whole=("SILENCE",)) if rows else ("no silences",)))


def _expire(arguments: argparse.Namespace) -> int:
    answer = Remote(arguments).ask("DELETE", path("silences", arguments.id))
    return _told(arguments, answer, f"{answer['id']}: over since {_time(answer['ends'])}")


def _audit(arguments: argparse.Namespace) -> int:
    answer = Remote(arguments).ask("GET", path("audit"), query={"limit": arguments.limit})
    rows = [
        (_time(one["time"]), one["actor"], one["action"], one["subject"], json.dumps(one["detail"], ensure_ascii=False))
        for one in answer["acts"]
    ]
    head = ("TIME", "ACTOR", "ACTION", "SUBJECT", "DETAIL")
    return _told(arguments, answer, *(table(head, rows, whole=("TIME",)) if rows else ("nothing was done",)))


def _silence_line(silence: Mapping[str, Any]) -> str:
    return f"{silence['id']}: silent from {_time(silence['starts'])} until {_time(silence['ends'])}: {_meant(silence)}"


def _meant(silence: Mapping[str, Any]) -> str:
    matchers = silence["matchers"]
    parts = [f"{name} {matchers[name]}" for name in ("run", "rule") if matchers[name] != "*"]
    parts += [matchers["severity"]] if matchers["severity"] else []
    parts += [f"{name}={pattern}" for name, pattern in matchers["labels"].items()]
    return ", ".join(parts) or "everything"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
