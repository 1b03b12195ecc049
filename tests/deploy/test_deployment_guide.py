"""docs/deployment.md: what it names exists, and the backup that it describes is one."""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

from tests.deploy.native import DEPLOY, LISTENING, ROOT, call, read_yaml, start

GUIDE = ROOT / "docs" / "deployment.md"
TEXT = GUIDE.read_text()
SERVE = [sys.executable, "-m", "tocsin_service", "serve", "--port", "0", "--db"]


def test_the_files_that_it_names_exist() -> None:
    for link in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (GUIDE.parent / link).exists(), link
    for path in re.findall(r"deploy/[\w./@-]+[\w]", TEXT):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?:systemd|compose|grafana|prometheus|kubernetes)/[\w./@-]*)`", TEXT):
        assert (DEPLOY / path).exists(), path


def test_it_names_all_profiles() -> None:
    services = read_yaml(ROOT / "docker-compose.yml")["services"].values()
    profiles = {profile for service in services for profile in service["profiles"]}
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) == profiles


def test_a_backup_of_a_running_service_has_all_that_was_acknowledged(tmp_path: Path) -> None:
    (command,) = re.findall(r"^python3 -c .*sqlite3.*$", TEXT, re.MULTILINE)
    _, *words = shlex.split(command)
    with ExitStack() as stack:
        address = start(stack, [*SERVE, tmp_path / "tocsin.db"], {}).said(LISTENING).group(1)
        assert (
            call(address, "/v1/runs/run/steps", body=[{"step": n, "metrics": {"loss": 1.0}} for n in range(50)])[0]
            == 202
        )
        subprocess.run([sys.executable, *words], cwd=tmp_path, check=True, timeout=60)
    with closing(sqlite3.connect(tmp_path / "backup.db")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with ExitStack() as stack:
        address = start(stack, [*SERVE, tmp_path / "backup.db"], {}).said(LISTENING).group(1)
        assert b'"vectors":50' in call(address, "/v1/runs/run")[1].replace(b" ", b"")
