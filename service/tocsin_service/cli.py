"""The ``tocsin`` command: serve, worker, tail, rollouts, check, replay, demo, rules, and what asks a service."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from tocsin import readers
from tocsin import rollouts as rollouts_command
from tocsin import tail as tail_command
from tocsin_service.commands import samples
from tocsin_service.commands.operating import LANGUAGES, add_commands
from tocsin_service.terminal import CannotError, say

__all__ = ["LANGUAGES", "main"]

USAGE_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status: 0 fine, 1 something was found (check), 2 it could not be done."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.command(arguments)
    except CannotError as error:
        print(f"tocsin: {error}", file=sys.stderr)
        return USAGE_ERROR
    except BrokenPipeError:  # the reader of our output has gone (`| head`)
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tocsin", description="The alarm bell of LLM reinforcement learning.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="run the service: all of it on a file, or the API on a shared store")
    serve.add_argument("--db", help="file of the store (default ./tocsin.db)")
    serve.add_argument("--store", metavar="URL", help="shared store instead: redis://HOST:PORT/DB; needs workers")
    _add_service_options(serve)
    serve.set_defaults(command=_serve)

    worker = commands.add_parser("worker", help="judge the runs of a shared store, together with other workers")
    worker.add_argument("--store", metavar="URL", help="the store that `tocsin serve` uses: redis://HOST:PORT/DB")
    _add_service_options(worker)
    worker.set_defaults(command=_work)

    tail = commands.add_parser("tail", help="follow the logs that a trainer writes, and stream them to a service")
    tail_command.add_arguments(tail)
    _add_run_options(tail)
    tail.set_defaults(command=tail_command.tail)

    _add_rollout_commands(commands)

    check = commands.add_parser("check", help="judge logs offline, as the service would have")
    check.add_argument(
        "files",
        nargs="+",
        metavar="SOURCE",
        help="JSONL, verl file log, CSV, console log, trainer_state.json, TensorBoard events, .wandb; a folder of "
        "logs; - is stdin",
    )
    check.add_argument("--run", help="run id (default: made from the log's path); part of every alert's id")
    check.add_argument("--json", action="store_true", help="print one JSON object per log")
    check.add_argument("--html", type=Path, metavar="FILE", help="write a page with the curves of the alerting metrics")
    check.add_argument(
        "--fail-on",
        choices=["info", "warning", "critical", "never"],
        default="critical",
        help="exit with 1 when an incident is at least this severe (default critical)",
    )
    check.add_argument("--lang", choices=LANGUAGES, default="en", help="language of the report (default en)")
    check.add_argument("--rules", metavar="FILE", help="YAML file with changed and own rules")
    _add_run_options(check)
    check.set_defaults(command=_check)

    replay = commands.add_parser("replay", help="send a log file to a service, as its trainer would have")
    replay.add_argument("file", metavar="FILE")
    replay.add_argument("--url", required=True, help="address of the service, e.g. http://127.0.0.1:8765")
    replay.add_argument("--run", help="run id (default: the file's name without its endings)")
    replay.add_argument("--token", help="bearer token (default: TOCSIN_TOKEN)")
    replay.add_argument("--rate", type=float, help="steps per second (default: as quick as it goes)")
    _add_run_options(replay)
    replay.set_defaults(command=_replay)

    demo = commands.add_parser("demo", help="watch a recorded training run collapse, end to end, on this machine")
    demo.add_argument("--port", type=int, default=8765, help="port to serve at (default 8765, or any if it is taken)")
    demo.add_argument("--rate", type=float, default=25.0, help="steps per second (default 25)")
    demo.add_argument("--exit", action="store_true", help="end after the summary, even on a terminal")
    demo.set_defaults(command=_demo)

    rules = commands.add_parser("rules", help="list the rules, explain one, or run tests of rules")
    rules.add_argument(
        "words",
        nargs="*",
        metavar="NAME | test FILE",
        help="rule to explain; or `test` and YAML files of rule tests to run: exit 1 if one fails, 2 if one is broken",
    )
    rules.add_argument("--rules", metavar="FILE", help="YAML file with changed and own rules")
    rules.add_argument("--lang", choices=LANGUAGES, default="en", help="language of the texts (default en)")
    rules.set_defaults(command=_rules)
    _add_receivers(commands)
    add_commands(commands)
    return parser


def _add_receivers(commands: Any) -> None:
    receivers = commands.add_parser("receivers", help="check a file of receivers, or ask whom it would tell")
    receivers.add_argument("file", metavar="FILE")
    asked = receivers.add_argument_group("an incident: whom would it be told?")
    asked.add_argument("--run", help="id of the run")
    asked.add_argument("--severity", choices=["warning", "critical"], help="of the incident (default critical)")
    asked.add_argument("--rule", action="append", default=[], help="of the incident or one of its alerts; repeatable")
    asked.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="of the run; repeatable")
    receivers.set_defaults(command=_receivers)


def _add_rollout_commands(commands: Any) -> None:
    rollouts = commands.add_parser(
        "rollouts", help="send what the model wrote to a service: verl's dump, TRL's parquet"
    )
    rollouts_command.add_arguments(rollouts)
    rollouts.set_defaults(command=rollouts_command.send)
    samples.add_command(commands)


def _add_service_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, help="TOML file with settings")
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on, 0 for any (default 8765)")
    parser.add_argument("--rules", metavar="FILE", help="YAML file with changed and own rules")
    parser.add_argument("--token-file", help="file with the bearer token that clients must send")
    parser.add_argument("--slack-webhook-file", help="file with the address of a Slack incoming webhook")


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is known of the run (all optional)")
    group.add_argument("--framework", help="verl, trl, openrlhf, ...: settles ambiguous metric names")
    group.add_argument("--algorithm", help="grpo, ppo, ...")
    group.add_argument("--group-size", type=int, help="rollouts per prompt")
    group.add_argument("--temperature", type=float, help="sampling temperature")


def _run_config(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("framework", "algorithm", "group_size", "temperature")
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def _load(module: str) -> ModuleType:
    """A part of Tocsin that needs an extra; without it, say which."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if missing.startswith("tocsin"):
            raise
        extra = "detectors" if missing.split(".")[0] in {"numpy", "scipy", "ruamel"} else "service"
        raise CannotError(f"{missing} is not installed; install it with: pip install 'tocsin[{extra}]'") from None


def _serve(arguments: argparse.Namespace) -> int:
    return _run_process("serve", arguments)


def _work(arguments: argparse.Namespace) -> int:
    return _run_process("work", arguments)


def _run_process(kind: str, arguments: argparse.Namespace) -> int:
    _load("tocsin_service.logs").set_up()
    app, settings = _load("tocsin_service.app"), _load("tocsin_service.settings")
    wire = getattr(_load("tocsin_service.wiring"), kind)
    names = ("host", "port", "db", "store", "rules", "token_file", "slack_webhook_file")
    flags = {name: value for name in names if (value := getattr(arguments, name, None)) is not None}
    try:
        return int(app.run(settings.load(flags, config=arguments.config), wire))
    except (settings.SettingsError, app.StartError) as error:
        raise CannotError(str(error)) from None


def _check(arguments: argparse.Namespace) -> int:
    verdict, report = _load("tocsin_service.commands.verdict"), _load("tocsin_service.commands.report")
    shown = _load("tocsin_service.presentation").Presentation(arguments.lang)
    rules = _read_rules(arguments.rules)
    found, broken = False, False
    pages: list[tuple[Any, Any]] = []
    for source in arguments.files:
        try:
            for log in readers.find(source):
                vectors, framework = verdict.read_log(log)
                told, curves = _judge(arguments, log.name, vectors, framework, rules)
                pages.append((told.to_json(shown), curves))
                if arguments.json:
                    print(json.dumps(pages[-1][0], allow_nan=False))
                else:
                    print("\n".join(report.verdict_lines(*pages[-1], arguments.lang)))
                if arguments.fail_on != "never" and told.worst is not None:
                    found |= told.worst.rank >= type(told.worst)(arguments.fail_on).rank
        except (OSError, readers.ReadError) as error:
            print(f"tocsin: {report.printable(error)}", file=sys.stderr)
            broken = True
    if arguments.html is not None:
        _write(arguments.html, _load("tocsin_service.pages.check").page(pages, arguments.lang))
    return USAGE_ERROR if broken else int(found)


def _judge(
    arguments: argparse.Namespace, name: str, vectors: list[Any], framework: str | None, rules: Any
) -> tuple[Any, Any]:
    """The verdict on one log, and the curves of its alerts."""
    given = {"framework": framework} if framework else {}
    config = _load("tocsin_detectors.entries").RunConfig(**{**given, **_run_config(arguments)})
    told = _load("tocsin_service.commands.verdict").judge(arguments.run or name, vectors, config, rules)
    return told, told.curves(vectors, config)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotError(f"{path} can't be written: {error.strerror}") from None


def _replay(arguments: argparse.Namespace) -> int:
    replay, readers = _load("tocsin_service.commands.replay"), _load("tocsin.readers")
    run = arguments.run or run_name(arguments.file)
    try:
        delivered = replay.replay(
            arguments.file,
            url=arguments.url,
            run=run,
            config=_run_config(arguments),
            token=arguments.token,
            rate=arguments.rate,
        )
    except (OSError, readers.ReadError) as error:
        raise CannotError(str(error)) from None
    if not delivered.complete:
        raise CannotError(f"not everything arrived: {delivered.summary}; is the service at {arguments.url} up?")
    print(f"{run}: {delivered.summary}")
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    demo = _load("tocsin_service.commands.demo")
    stay = sys.stdout.isatty() and not arguments.exit
    return int(demo.demo(port=arguments.port, rate=arguments.rate, stay=stay))


def _rules(arguments: argparse.Namespace) -> int:
    name, *rest = arguments.words or [None]
    if name == "test":
        return _test_rules(rest, arguments.rules)
    if rest:
        raise CannotError(f"one rule can be explained at a time, not {', '.join(arguments.words)}")
    rules, texts = _read_rules(arguments.rules), _load("tocsin_detectors.texts")
    if name is None:
        for rule in rules:
            print(f"{rule.name:30s} {rule.severity:9s} {texts.translated(rule, arguments.lang).title}")
        return 0
    if name not in rules:
        raise CannotError(f"no rule is called {name!r}; `tocsin rules` lists them")
    report = _load("tocsin_service.commands.report")
    print("\n".join(report.rule_lines(rules[name], arguments.lang)))
    return 0


def _read_rules(path: str | None) -> Any:
    """The rules that a rule file makes; the shipped ones without it."""
    files = _load("tocsin_service.rulefiles")
    try:
        return files.read_rules(path)
    except files.RulesError as error:
        raise CannotError(str(error)) from None


def _test_rules(paths: Sequence[str], rules: str | None) -> int:
    """Run files of rule tests; a broken one doesn't keep the others from running."""
    if not paths:
        raise CannotError("name the files to run: tocsin rules test FILE...")
    if rules is not None:
        raise CannotError("a file of rule tests names its rule file itself (`rules: FILE`); leave --rules out")
    files = _load("tocsin_service.rulefiles")
    passed, failed, broken = 0, 0, False
    for path in paths:
        try:
            for ok, lines in files.run_tests(Path(path)):
                print(lines)
                passed, failed = passed + ok, failed + (not ok)
        except files.RulesError as error:
            print(f"tocsin: {error}", file=sys.stderr)
            broken = True
    print(f"{passed} passed, {failed} failed")
    return USAGE_ERROR if broken else int(failed > 0)


def _receivers(arguments: argparse.Namespace) -> int:
    files, report = _load("tocsin_service.delivery.files"), _load("tocsin_service.delivery.files.report")
    asked, labels = arguments.run, [label.partition("=")[::2] for label in arguments.label]
    try:
        if asked is None and not (arguments.severity or arguments.rule or labels):
            say(*report.check(Path(arguments.file)))
        else:
            severity = _load("tocsin_detectors.alerts").Severity(arguments.severity or "critical")
            found = report.whom(
                Path(arguments.file),
                run=asked or "",
                severity=severity,
                rules=arguments.rule or [""],
                labels=dict(labels),
            )
            say(*found)
    except files.ReceiversError as error:
        raise CannotError(str(error)) from None
    return 0


def run_name(file: str) -> str:
    """The run id that a log gets if none is given."""
    return "stdin" if file == "-" else readers.name_of(Path(file))
