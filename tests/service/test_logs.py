"""The log: nobody but the process can write a line of it, and nothing in it steers a terminal."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.fleet import eventually

from tocsin_service.logs import FORMAT, LineFormatter

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.-]+: \S")
HOSTILE = "run\n2026-11-29 00:00:00,000 INFO tocsin: all is well\r\x1b[2J\x1b]0;title\x07\u202e\x00\ud800\x85\u2028"


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter(FORMAT))
    logger = logging.getLogger("tests.log")
    logger.addHandler(handler)
    yield logger, written
    logger.removeHandler(handler)


def test_a_message_is_one_line(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    logger.warning("run %s is odd", HOSTILE)
    text = written.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert LINE.match(text)
    assert "\\x1b[2J" in text


def test_a_traceback_is_indented(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    try:
        int(HOSTILE)
    except ValueError:
        logger.exception("it failed\n")
    logger.error("where", stack_info=True)
    first, *rest = written.getvalue().splitlines()
    assert LINE.match(first)
    assert all(line.isprintable() for line in rest)
    assert [line for line in rest if not line.startswith("    ")] == [line for line in rest if line.endswith(": where")]


def test_names_may_be_in_any_language(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    logger.warning("训练-é-🔔")
    assert "训练-é-🔔" in written.getvalue()


def test_what_a_process_writes(start_process: Any, hook: Any, tmp_path: Path) -> None:
    """A receiver's answer comes into the log; the trainer's names do as well."""
    hook.script.append((400, {}))
    hook.body = HOSTILE.encode(errors="surrogatepass")
    (tmp_path / "hook").write_text(hook.address)
    (tmp_path / "tocsin.toml").write_text(f'webhook_file = "{tmp_path / "hook"}"\n')
    process = start_process("serve", "--config", str(tmp_path / "tocsin.toml"), "--db", str(tmp_path / "t.db"))
    process.api.post({"step": 1, "metrics": {"actor/pg_loss": float("nan")}})
    eventually(lambda: any("can't be told" in line for line in process.log), 30, "the refusal")
    assert process.end() == 0
    for line in process.log:
        assert line[:-1].isprintable()
        assert LINE.match(line)
