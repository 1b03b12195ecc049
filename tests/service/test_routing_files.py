"""The file in which an operator says who can be told, and who is told of what."""

from __future__ import annotations

from datetime import time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.receiver_files import write_receivers

from tocsin_detectors.alerts import Severity
from tocsin_service import cli
from tocsin_service.delivery.alertmanager import Alertmanager
from tocsin_service.delivery.files import ReceiversError, make_receiver, read_plan
from tocsin_service.delivery.making import Surroundings
from tocsin_service.delivery.pace import Pace
from tocsin_service.delivery.policy import Policy
from tocsin_service.delivery.quiet import QuietHours
from tocsin_service.delivery.routing import Route, recipients
from tocsin_service.delivery.slack import Slack
from tocsin_service.delivery.slack_app import SlackApp
from tocsin_service.delivery.telling import plan_of
from tocsin_service.delivery.webhook import Webhook
from tocsin_service.presentation import Presentation
from tocsin_service.server import StartError
from tocsin_service.settings import Settings
from tocsin_service.silences import Matchers

W, C = Severity.WARNING, Severity.CRITICAL
BERLIN = ZoneInfo("Europe/Berlin")

WHOLE = """
version: 1
receivers:
  - name: oncall
    slack: {token_file: secrets/token, channel: C012345}
    quiet_hours: {from: "22:00", to: "08:00", timezone: Europe/Berlin, days: [mon, tue, wed, thu, fri]}
    pace: {burst: 3, seconds: 60}
    remind_hours: 4
    lang: zh
  - name: chat
    slack: {webhook_file: hook}
    quiet_hours:
      - {from: "22:00", to: "8:00", timezone: Asia/Shanghai}
      - {from: "00:00", to: "24:00", timezone: Asia/Shanghai, days: [sat, sun]}
  - name: program
    webhook: {address: "https://example.com/hook", secret_file: key}
  - name: am
    alertmanager: {address: "http://alertmanager:9093"}
routes:
  - match: {severity: critical, run: "prod-*", rule: "kl_*", labels: {team: rl}}
    to: [oncall, program]
    continue: true
  - to: [chat, am]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "receivers.yaml"
    path.write_text(text)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    plan = read_plan(write(tmp_path, WHOLE))
    oncall, chat, program, am = plan.receivers
    assert plan.names == ("oncall", "chat", "program", "am")
    weekdays, shanghai = frozenset(range(5)), ZoneInfo("Asia/Shanghai")
    assert oncall.policy == Policy((QuietHours(time(22), time(8), BERLIN, weekdays),), Pace(3, 60.0), 4 * 3600.0)
    assert oncall.lang == "zh"
    assert chat.policy.quiet == (
        QuietHours(time(22), time(8), shanghai),
        QuietHours(time(0), time(0), shanghai, frozenset({5, 6})),
    )
    assert program.policy == Policy()
    assert am.policy == Policy(mirrors=True)
    first = Matchers("prod-*", "kl_*", C, {"team": "rl"})
    assert plan.routes == (Route(first, ("oncall", "program"), goes_on=True), Route(Matchers(), ("chat", "am")))


def test_the_file_in_the_documentation(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "receivers.md").read_text()
    path = write(tmp_path, text.partition("```yaml\n")[2].partition("```")[0])
    plan = read_plan(path)
    assert plan.names == ("oncall", "chat", "robot")
    told = [
        recipients(plan.routes, plan.names, run=run, severity=severity, rules=["kl"], labels={})
        for run, severity in (("scratch-1", C), ("prod", C), ("prod", W))
    ]
    assert told == [frozenset(), {"oncall", "robot", "chat"}, {"chat"}]


def test_receivers_are_made_as_described(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE)
    (tmp_path / "secrets").mkdir()
    for file, secret in (("secrets/token", "xoxb-1"), ("hook", "https://hooks.example/T0"), ("key", "sesame")):
        (tmp_path / file).write_text(secret)
    around = Surroundings(Presentation("en"))
    made = [make_receiver(described, around, path) for described in read_plan(path).receivers]
    assert [type(one) for one in made] == [SlackApp, Slack, Webhook, Alertmanager]
    assert [one.name for one in made] == ["oncall", "chat", "program", "am"]
    for one in made:
        assert not any(secret in repr(vars(one)) for secret in ("xoxb-1", "hooks.example", "sesame"))
        one.close()


def test_a_file_with_a_secret_that_is_none(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE)
    (tmp_path / "hook").write_text("http://somewhere.example/T0/secret")
    for described, told in zip(
        read_plan(path).receivers,
        (
            f"{path}:4: oncall: token: {tmp_path}/secrets/token can't be read: FileNotFoundError",
            f"{path}:10: chat: webhook: has to begin with https:// (http:// only for this machine)",
            f"{path}:15: program: secret: {tmp_path}/key can't be read: FileNotFoundError",
        ),
        strict=False,
    ):
        with pytest.raises(ReceiversError) as raised:
            make_receiver(described, Surroundings(), path)
        assert str(raised.value) == told


PROBLEMS = """receivers:
  - name: Team Chat
    slack: {webhook_file: a}
  - slack: {webhook_file: a}
  - name: a
    slack: {webhook: "https://hooks.slack.com/services/T0/B0/x"}
  - name: a
    webhook: {address: "https://example.com"}
  - name: b
  - name: c
    slack: {webhook_file: a}
    webhook: {address: "https://example.com"}
  - name: d
    slack: {token_file: a}
  - name: e
    slack: {token_file: a, channel: C1, webhook_file: b}
  - name: f
    webhook: {adress: "https://example.com"}
  - name: g
    webhook: {address: "http://example.com"}
  - name: h
    webhook: {address: "https://user:password@example.com"}
  - name: i
    webhook: {address: "https://example.com", address_file: a}
  - name: j
    alertmanager: {address: "am:9093"}
    pace: {burst: 1}
  - name: k
    webhook: {address: "https://example.com"}
    quiet_hours: {from: 22, to: "25:00", timezone: Europe/Berlino, days: [mo]}
    pace: {burst: 0, seconds: fast, minutes: 1}
    remind_hours: -1
    lang: fr
    remind: 4
  - name: l
    webhook: {address: "https://example.com"}
    quiet_hours: {from: "8:00", to: "08:00", timezone: UTC}
  - name: m
    webhook: {address: "https://example.com"}
    quiet_hours: {from: "8:00", timezone: UTC}
  - name: slack
    webhook: {address: "https://example.com"}
routes:
  - match: {severity: info, team: rl}
    to: [a, kk]
  - match: {run: 7, labels: {team: [a]}}
  - to: []
    continue: maybe
route: []
"""

TOLD = """
2: name has to be 1 to 40 of a-z, 0-9 and -, such as team-chat, not the text 'Team Chat'
4: a receiver needs a `name`, by which routes call it
6: a: slack: webhook is a secret; put it into a file and write webhook_file: PATH
7: the one in line 5 is already called 'a'; give this one another name
9: b needs one of slack, webhook, alertmanager, apprise: where to tell it
10: c needs one of slack, webhook, alertmanager, apprise: where to tell it; it has slack and webhook: make it 2
14: d: slack needs webhook_file, or channel and token_file
16: e: slack needs webhook_file, or channel and token_file
18: f: webhook has no 'adress'; did you mean 'address'?
18: f: webhook needs address
20: g: webhook: address has to begin with https:// (http:// only for this machine)
22: h: webhook: address seems to hold a password; put it into a file and write address_file: PATH
24: i: webhook: address is given twice, here and as a file; keep one
26: j: alertmanager: address is no address that a path can follow; write one such as http://alertmanager:9093
27: j: alertmanager has a pace of its own; leave pace out here
30: k: quiet_hours: from has to be a time of day such as "22:00"
30: k: quiet_hours: to has to be a time of day such as "22:00"
30: k: quiet_hours: no time zone is called 'Europe/Berlino'; did you mean 'Europe/Berlin'?
30: k: quiet_hours: days has to be one of mon, tue, wed, thu, fri, sat, sun, not the text 'mo'; did you mean 'mon'?
31: k: pace has no 'minutes'; known are burst, seconds
31: k: pace: burst has to be from 1 to 1000
31: k: pace: seconds has to be a number, not the text 'fast'
32: k: remind_hours has to be from 0.01 to 720
33: k: lang has to be one of en, zh, not the text 'fr'
34: k has no 'remind'; did you mean 'remind_hours'?
37: l: quiet_hours: begins and ends at once; a whole day is {from: "00:00", to: "24:00"}
40: m: quiet_hours needs to: {from: "22:00", to: "08:00", timezone: Europe/Berlin}
41: the settings make a receiver called 'slack'; give this one another name
44: route 1: match has no 'team'; known are labels, rule, run, severity
44: route 1: match: severity has to be one of warning, critical, not the text 'info'
45: route 1: no receiver is called 'kk'; did you mean 'k'?
46: route 2: match: run has to be a text that isn't empty, not 7; quote it: '7'
46: route 2: match: label team has to be a text, not a list
46: route 2 needs `to`, names of receivers; `to: []` tells nobody
48: route 3: continue has to be true or false, not the text 'maybe'
49: a file of receivers has no 'route'; did you mean 'routes'?
"""


def test_everything_that_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, PROBLEMS)
    with pytest.raises(ReceiversError) as raised:
        read_plan(path, ["slack"])
    assert str(raised.value) == "\n".join(f"{path}:{line}" for line in TOLD.strip().splitlines())
    assert "hooks.slack.com" not in str(raised.value)
    assert "user:password" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "1: the file is empty"),
        ("receivers: {", "1: this is no YAML"),
        ("receivers: {}", "1: receivers has to be a list, not a mapping"),
        ("version: 2", "1: version has to be 1"),
        ("- a", "1: a file of receivers has to be a mapping"),
        ("receivers: [7]", "1: a receiver has to be a mapping"),
        ("receivers: [{name: a, slack: 7}]", "1: a: slack has to be a mapping"),
        ("receivers:\nroutes: [{to: [a]}]", "2: route 1: no receiver is called 'a'"),
        ("receivers: &a []", "1: anchors"),
        ("receivers: [" + "{name: a}," * 51 + "]", "1: receivers: 51 of them; at most 50 are read"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, told: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ReceiversError) as raised:
        read_plan(path)
    assert str(raised.value).startswith(f"{path}:{told}")


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(ReceiversError, match=r"missing\.yaml: can't be read: No such file or directory"):
        read_plan(tmp_path / "missing.yaml")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(ReceiversError, match="is no UTF-8 text"):
        read_plan(tmp_path / "bytes")


@given(st.text(max_size=60) | st.sampled_from([WHOLE, PROBLEMS]).flatmap(
    lambda text: st.tuples(st.integers(0, len(text)), st.integers(0, 30), st.text(max_size=4)).map(
        lambda cut: text[: cut[0]] + cut[2] + text[cut[0] + cut[1] :]
    )
))  # fmt: skip
def test_whatever_stands_in_a_file_the_problems_are_told(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text)
    try:
        read_plan(path)
    except ReceiversError as error:
        assert all(line.startswith(str(path)) for line in str(error).splitlines())  # noqa: PT017 - or it can be read


# The settings, the service and the command.


def test_the_receivers_of_the_settings_and_of_the_file(tmp_path: Path) -> None:
    path = write_receivers(tmp_path, {"name": "chat", "webhook": {"address": "https://example.com"}})
    settings = Settings(
        webhook="https://example.com/hook",
        webhook_secret="key",  # noqa: S106 - a test's
        alertmanager="http://am:9093",
        receivers=path,
    )
    plan = plan_of(settings)
    assert [(one.name, one.kind, one.policy.mirrors) for one in plan.receivers] == [
        ("webhook", "webhook", False),
        ("alertmanager", "alertmanager", True),
        ("chat", "webhook", False),
    ]
    token = {"slack_token": "xoxb-1"}
    assert plan_of(Settings(slack_channel="C1", **token)).names == ("slack",)
    assert plan_of(Settings()).names == ()
    assert not any(secret in repr(plan) for secret in ("example.com", "key"))


def test_a_broken_file_stops_the_start(make_api: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "receivers: [{name: a}]")
    with pytest.raises(StartError, match=r"receivers\.yaml:1: a needs one of slack, webhook"):
        make_api(receivers=path)
    (tmp_path / "empty").touch()
    write_receivers(tmp_path, {"name": "a", "slack": {"webhook_file": "empty"}})
    with pytest.raises(StartError, match=r"receivers\.yaml:1: a: webhook: .*empty is empty"):
        make_api(receivers=path)


def test_the_command_checks_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, WHOLE + "  - to: []\n")
    assert cli.main(["receivers", str(path)]) == 2
    assert "route 3 is never looked at" in capsys.readouterr().err
    write(tmp_path, WHOLE.replace("[chat, am]", "[chat, slack]"))
    assert cli.main(["receivers", str(path)]) == 0
    told = capsys.readouterr().out
    oncall = "slack; lang zh; quiet 22:00 to 08:00 Europe/Berlin mon tue wed thu fri"
    for line in (
        f"  oncall   {oncall}; at most 3 messages at once, then one each 60 s; reminded after 4 h\n",
        "  am       alertmanager; shown all that fires\n",
        "  1. critical, run prod-*, rule kl_*, label team=rl -> oncall, program (and on)\n",
        "  2. everything -> chat, slack\n",
        "note: no route leads to am\n",
        f"note: can't be made on this machine: {path}:4: oncall: token: ",
        "note: slack is not in this file; the service's settings have to make it\n",
    ):
        assert line in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--run prod-1 --severity critical --rule kl_jump --label team=rl", "chat, oncall, program, am"),
        ("--run prod-1 --rule x --rule kl_jump --label team=rl", "chat, oncall, program, am"),
        ("--run prod-1 --severity warning --rule kl_jump --label team=rl", "chat, am"),
        ("--label team=rl", "chat, am"),
    ],
)
def test_the_command_tells_whom_it_would_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    assert cli.main(["receivers", str(write(tmp_path, WHOLE)), *words.split()]) == 0
    *matches, last = capsys.readouterr().out.splitlines()
    assert last == "told: " + ", ".join(sorted(told.split(", ")))
    assert matches[-1] == "route 2 matches: everything"
