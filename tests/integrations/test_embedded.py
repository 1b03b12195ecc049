"""A service as a child of the trainer: it comes up, is shared, and never outlives who has started it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.integrations.conftest import PATIENCE, run_program

BEGIN = """
import json, sys, tocsin
run = tocsin.init("run", embedded=True)
tocsin.log({"actor/grad_norm": float("nan")}, 1)
print(run.url, flush=True)
"""
WAIT = f"{BEGIN}sys.stdin.readline()\nassert tocsin.finish(30)\n"


def start(code: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**clean, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, process.communicate()
    return line


def end(process: subprocess.Popen[str]) -> str:
    """Lets it go on to its end; what it said on standard error."""
    _, said = process.communicate("\n", timeout=PATIENCE)
    assert process.returncode == 0, said
    return said


def is_gone(url: str) -> bool:
    where = urlsplit(url)
    try:
        socket.create_connection((where.hostname or "", where.port or 0), 1).close()
    except ConnectionRefusedError:
        return True
    return False


def await_gone(url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_gone(url):
        assert time.monotonic() < deadline, f"{url} still answers"
        time.sleep(0.05)


@pytest.mark.timeout(200)
def test_it_lives_as_long_as_its_trainer_and_keeps_what_it_heard(tmp_path: Path) -> None:
    process = start(WAIT, tmp_path)
    url = first_line(process)
    with urllib.request.urlopen(f"{url}/v1/runs", timeout=PATIENCE) as response:
        assert response.status == 200
    said = end(process)
    assert is_gone(url)  # an end in good order waits until all is judged and told
    assert said.count("tocsin: serving at") == 1
    assert url in said
    again = """
import json, tocsin
run = tocsin.init("run", embedded=True)
print(json.dumps([alert["rule"] for alert in run.alerts()]))
"""
    assert "non_finite" in json.loads(run_program("-c", again, folder=tmp_path).stdout)


@pytest.mark.timeout(200)
def test_a_second_trainer_uses_the_first_ones(tmp_path: Path) -> None:
    first = start(WAIT, tmp_path)
    url = first_line(first)
    second = start(WAIT, tmp_path, TOCSIN_DB=str(tmp_path / "tocsin.db"))
    assert first_line(second) == url
    assert "serving at" not in end(second)
    urllib.request.urlopen(f"{url}/healthz", timeout=PATIENCE).close()
    end(first)
    await_gone(url)


@pytest.mark.timeout(200)
def test_a_killed_trainer_takes_it_along_even_if_its_children_live_on(tmp_path: Path) -> None:
    fork = "import os, time\nif os.fork() == 0:\n    time.sleep(100)\n    os._exit(0)\n"
    process = start(f"{BEGIN}{fork}print('forked', flush=True)\nsys.stdin.readline()", tmp_path)
    url = first_line(process)
    assert first_line(process) == "forked"
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)
    await_gone(url)
    for pipe in (process.stdin, process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


@pytest.mark.timeout(200)
def test_ctrl_c_is_the_trainers_alone(tmp_path: Path) -> None:
    # Where these tests run in the background, a shell has told all of its children to ignore Ctrl-C.
    heed = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    wait = "try:\n    print('ready', flush=True)\n    sys.stdin.readline()\n"
    code = f"{BEGIN}{heed}{wait}except KeyboardInterrupt:\n    print(tocsin.finish(30))\n"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=clean,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    first_line(process)
    assert first_line(process) == "ready"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    told, _ = process.communicate(timeout=PATIENCE)
    assert told.strip() == "True"


def test_a_missing_extra_is_said_and_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "fastapi.py").write_text("raise ModuleNotFoundError('no fastapi', name='fastapi')\n")
    code = "import tocsin\nrun = tocsin.init('run', embedded=True, exit_timeout=0)\nprint(run.url)"
    search = os.pathsep.join([str(tmp_path / "without"), os.environ.get("PYTHONPATH", "")])
    done = run_program("-c", code, folder=tmp_path, PYTHONPATH=search)
    assert done.stdout.strip() == "http://127.0.0.1:8765"
    assert "fastapi is not installed; pip install 'tocsin[service]'" in done.stderr


def test_a_store_in_use_is_said(tmp_path: Path) -> None:
    (tmp_path / "tocsin.db").mkdir()
    code = "import tocsin\ntocsin.init('run', embedded=True, exit_timeout=0)"
    assert "the embedded service can't start" in run_program("-c", code, folder=tmp_path).stderr


def test_the_environment_asks_for_it_unless_it_names_a_server(tmp_path: Path) -> None:
    code = "import tocsin\nprint(tocsin.init('run', exit_timeout=0).url)"
    named = run_program("-c", code, folder=tmp_path, TOCSIN_EMBEDDED="1", TOCSIN_URL="http://127.0.0.1:1")
    assert named.stdout.strip() == "http://127.0.0.1:1"
    assert not (tmp_path / "tocsin.db").exists()
    off = run_program("-c", code, folder=tmp_path, TOCSIN_EMBEDDED="1", TOCSIN_DISABLED="1")
    assert off.stdout.strip() == "http://127.0.0.1:8765"
    own = run_program("-c", code, folder=tmp_path, TOCSIN_EMBEDDED="1")
    assert own.stdout.strip() != "http://127.0.0.1:8765"
    assert (tmp_path / "tocsin.db").exists()


def test_nobody_gets_one_without_asking(tmp_path: Path) -> None:
    code = "import tocsin, sys\ntocsin.init('run', exit_timeout=0)\nprint('tocsin._embedded' in sys.modules)"
    assert run_program("-c", code, folder=tmp_path).stdout.strip() == "False"
    assert list(tmp_path.iterdir()) == []
