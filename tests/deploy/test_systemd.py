"""The systemd units: verified by systemd's own tools, and started with what systemd would give them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.deploy.fleet import Fleet
from tests.deploy.native import DEPLOY, LISTENING, Program, call, needs, start, until

from tocsin_service.settings import Settings

FOLDER = DEPLOY / "systemd"
UNITS = ("tocsin.service", "tocsin-worker@.service")
STAGES = 8  # of a stop: the HTTP server, what judges and keeps, and a few receivers
EXPOSURE = 20  # of 100, as `systemd-analyze security` counts; without any hardening a service has 96
TOKEN = "a-token-of-this-test"  # noqa: S105

every_unit = pytest.mark.parametrize("unit", UNITS)


def settings_of(*names: str) -> dict[str, list[str]]:
    """The values of each key in a unit and its drop-ins, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        for line in (FOLDER / name).read_text().splitlines():
            if "=" in line and not line.startswith("#"):
                key, value = line.split("=", 1)
                found[key].append(value)
    return found


@every_unit
def test_systemd_understands_the_unit(unit: str, tmp_path: Path) -> None:
    """With the command that is here, as verify looks whether it exists."""
    text = (FOLDER / unit).read_text()
    (tmp_path / unit).write_text(text.replace("/opt/tocsin/bin/tocsin", "/bin/true"))
    command = [needs("systemd-analyze"), "verify", "--man=no", tmp_path / unit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@every_unit
def test_the_unit_is_hardened(unit: str) -> None:
    command = [needs("systemd-analyze"), "security", "--offline=yes", f"--threshold={EXPOSURE}", FOLDER / unit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze is too old")
    assert done.returncode == 0, done.stdout


@every_unit
def test_the_end_has_time_enough(unit: str) -> None:
    (limit,) = settings_of(unit)["TimeoutStopSec"]
    assert int(limit) > STAGES * Settings().stop_seconds


@every_unit
def test_secrets_are_credentials(unit: str) -> None:
    """Every file that the environment names is one that systemd shows to this service alone."""
    found = settings_of(unit, "shared.conf")
    credentials = {one.split(":")[0] for one in found["LoadCredential"]}
    assert set(re.findall(r"%d/([\w-]+)", " ".join(found["Environment"]))) == credentials
    assert all(one.split(":")[1].startswith("/etc/tocsin/") for one in found["LoadCredential"])


def run(stack: ExitStack, machine: Path, instance: str, *names: str) -> tuple[Program, str]:
    """Starts what a unit starts, with systemd's words replaced as it does; with its address."""
    found = settings_of(*names)
    specifiers = {"%d": "credentials", "%S": "lib", "%C": "cache"}
    variables: dict[str, str] = {}
    for line in found["Environment"]:
        variables |= dict(pair.split("=", 1) for pair in shlex.split(line))
    (line,) = found["ExecStart"]
    program, *words = _replaced(line, machine, specifiers, instance).split()
    assert program == "/opt/tocsin/bin/tocsin"
    environment = {key: _replaced(value, machine, specifiers, instance) for key, value in variables.items()}
    made = start(stack, [sys.executable, "-m", "tocsin_service", *words], environment)
    return made, made.said(LISTENING).group(1)


def _replaced(text: str, machine: Path, specifiers: Mapping[str, str], instance: str) -> str:
    for specifier, folder in specifiers.items():
        text = text.replace(specifier, f"{machine}/{folder}")
    text = text.replace("%i", instance).replace("/etc/tocsin", f"{machine}/etc")
    assert "%" not in text
    return text


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine on which docs/deployment.md has been followed."""
    for folder in ("etc", "credentials", "lib/tocsin", "cache/tocsin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "credentials/tokens").write_text(f"trainer ingest,read {TOKEN}\n")
    return tmp_path


def configure(machine: Path, store: str = "") -> None:
    """The file as it is shipped, on any port; with a store also what is a comment in it."""
    text = (FOLDER / "tocsin.toml").read_text().replace("port = 8765", "port = 0")
    if store:
        text = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
        text = text.replace("redis://127.0.0.1:6379/0", store)
        text = re.sub("^public_url.*$", "", text, flags=re.MULTILINE)
    (machine / "etc/tocsin.toml").write_text(text)


def test_the_service_starts(machine: Path) -> None:
    configure(machine)
    with ExitStack() as stack:
        service, address = run(stack, machine, "", "tocsin.service")
        vector = {"step": 1, "metrics": {"loss": 1.0}}
        assert call(address, "/v1/runs/run/steps", TOKEN, vector)[0] == 202
        assert call(address, "/v1/runs/run/steps", "", vector)[0] == 401
        assert (machine / "lib/tocsin/tocsin.db").exists()
        assert service.end() == 0


def test_the_api_and_a_worker_share_a_redis(machine: Path, fleet: Fleet) -> None:
    (machine / "credentials/redis-password").write_text((fleet.folder / "run/secrets/redis-password").read_text())
    configure(machine, f"redis://127.0.0.1:{fleet.redis_port}/0")
    with ExitStack() as stack:
        _, api = run(stack, machine, "", "tocsin.service", "shared.conf")
        process, worker = run(stack, machine, "0", "tocsin-worker@.service")
        until(lambda: json.loads(call(api, "/readyz")[1]) == {"status": "ready"}, "the API to see workers")
        assert b"tocsin_worker_partitions" in call(worker, "/metrics", TOKEN)[1]
        assert process.end() == 0
