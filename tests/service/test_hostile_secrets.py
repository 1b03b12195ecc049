"""Secrets stay where they are: not in what a process writes, nor in what it answers, while everything goes wrong."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from tests.faults.fleet import eventually

from tocsin_service.settings import SettingsError, load
from tocsin_service.settings.sources import SECRETS

MARK = "very-secret"  # in each of them
TOKEN = f"tok-{MARK}-1"
BAD = {"step": 1, "metrics": {"actor/pg_loss": float("nan")}}


@pytest.fixture
def nobody() -> str:
    """Host and port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def secrets(hook: Any, nobody: str, chat: str) -> dict[str, str]:
    """A value for every secret setting; every receiver among them fails."""
    given = {
        "token": TOKEN,
        "webhook": f"{hook.address}?key={MARK}",
        "webhook_secret": f"sign-{MARK}",
        "alertmanager": f"http://user:pw-{MARK}@{nobody}/{MARK}",
        "link_secret": f"links-{MARK}",
    }
    if chat == "app":
        return {**given, "slack_token": f"xoxb-{MARK}"}
    return {**given, "slack_webhook": f"http://user:pw-{MARK}@{nobody}/services/{MARK}"}


@pytest.mark.parametrize("chat", ["webhook", "app"])
def test_while_every_receiver_fails(
    hook: Any, nobody: str, start_process: Any, tmp_path: Path, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.script += [(status, {}) for status in (400, 301, *(500,) * 50)]  # the first is final, for one run
    hook.body = f"denied: {hook.address}?key={MARK}".encode()  # a receiver that tells everything
    monkeypatch.setenv("HTTPS_PROXY", f"http://{nobody}")  # whatever lies beyond this machine isn't called
    lines = ['public_url = "https://tocsin.example"', "max_run_rate = 0"]
    lines += ['slack_channel = "C012345"'] if chat == "app" else []
    for name, value in secrets(hook, nobody, chat).items():
        (tmp_path / name).write_text(value)
        lines.append(f'{name}_file = "{tmp_path / name}"')
    (tmp_path / "tocsin.toml").write_text("\n".join(lines))
    words = ("--config", str(tmp_path / "tocsin.toml"), "--db", str(tmp_path / "t.db"))
    process = start_process("serve", *words)
    api, headers = process.api, {"authorization": f"Bearer {TOKEN}"}
    answers = [api.call("POST", f"/v1/runs/run-{number}/steps", BAD, headers) for number in range(3)]
    answers.append(api.call("GET", "/v1/runs", headers={"authorization": f"Bearer wrong-{MARK}"}))

    def failing() -> bool:
        text = api.call("GET", "/metrics", headers=headers).data.decode()
        tried = [line for line in text.splitlines() if line.startswith("tocsin_delivery_total{")]
        results = {line.split("{")[1].split("}")[0] for line in tried if not line.endswith(" 0.0")}
        names = {result.split('receiver="')[1].split('"')[0] for result in results}
        refused = 'receiver="webhook",result="failed"' in results
        return refused and names == {"webhook", "slack", "alertmanager"}

    eventually(failing, 60, "every receiver tried")
    (tmp_path / "token").write_text(f"{TOKEN} and-{MARK}")  # broken
    eventually(lambda: asked_again(api, headers, process), 60, "a look at the broken file")
    paths = ("/metrics", "/v1/runs", "/v1/alerts", "/v1/incidents", "/v1/audit", "/openapi.json", "/readyz", "/x")
    answers += [api.call("GET", path, headers=headers) for path in paths]
    assert {answer.status for answer in answers} == {202, 401, 200, 404}
    for answer in answers:
        assert MARK not in answer.data.decode()
        assert MARK not in str(answer.headers)
    assert process.end() == 0
    written = "".join(process.log)
    assert all(f"{name} was not told" in written for name in ("slack", "webhook", "alertmanager"))
    assert "webhook can't be told" in written
    assert MARK not in written


def asked_again(api: Any, headers: dict[str, str], process: Any) -> bool:
    assert api.call("GET", "/v1/runs", headers=headers).status == 200
    return any("stay as they were" in line for line in process.log)


def test_a_store_that_is_not_there(start_process: Any, nobody: str, tmp_path: Path) -> None:
    (tmp_path / "tocsin.toml").write_text(f'store = "redis://user:pw-{MARK}@{nobody}/0"\nredis_password = "{MARK}"\n')
    process = start_process("serve", "--config", str(tmp_path / "tocsin.toml"))
    for path, body in (("/readyz", None), ("/v1/runs", None), ("/v1/runs/run/steps", BAD)):
        answer = process.api.call("GET" if body is None else "POST", path, body)
        assert answer.status == 503
        assert MARK not in answer.data.decode()
    assert process.end() == 0
    written = "".join(process.log)
    assert nobody in written
    assert MARK not in written


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("value", [f"{MARK} \x07\n", f"ftp://{MARK}", f"https://[{MARK}", f"{MARK}\ud800", MARK])
def test_settings_that_are_refused(tmp_path: Path, name: str, value: str) -> None:
    """Whatever is wrong with a secret is told without it."""
    for flags in ({name: value}, {f"{name}_file": tmp_path / "file"}):
        (tmp_path / "file").write_bytes(value.encode(errors="surrogatepass"))
        assert MARK not in told(flags)


def told(flags: dict[str, Any]) -> str:
    """What there is to see of settings, or of why they are refused."""
    try:
        return repr(load(flags, environ={}))
    except SettingsError as error:
        return str(error)


def test_every_secret_is_tried(hook: Any) -> None:
    """A new secret setting has to be thought about here."""
    tried = {name for chat in ("webhook", "app") for name in secrets(hook, "127.0.0.1:1", chat)}
    assert set(SECRETS) == tried | {"redis_password"}
