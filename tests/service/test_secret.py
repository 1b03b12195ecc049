"""Secrets that may change while the service runs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tocsin_service.settings.secret import Secret


def _long(text: str) -> None:
    if len(text) < 4:
        raise ValueError("has to have 4 characters")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(" first \n")
    return file


def test_one_that_does_not_change() -> None:
    assert Secret("value").read() == "value"


def test_a_file_is_read_again_when_it_changes(file: Path) -> None:
    secret = Secret.of_file(file)
    assert secret.read() == "first"
    file.write_text("the second")
    assert secret.read() == "the second"


def test_a_file_of_the_same_length_that_takes_its_place(file: Path, tmp_path: Path) -> None:
    secret = Secret.of_file(file)
    assert secret.read() == "first"
    other = tmp_path / "other"
    other.write_text(" again \n")
    other.rename(file)
    assert secret.read() == "again"


def test_a_link_that_leads_elsewhere(file: Path, tmp_path: Path) -> None:
    """As Kubernetes replaces mounted secrets."""
    link, other = tmp_path / "link", tmp_path / "other"
    link.symlink_to(file)
    secret = Secret.of_file(link)
    other.write_text("other")
    (tmp_path / "new").symlink_to(other)
    (tmp_path / "new").rename(link)
    assert secret.read() == "other"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"abc", None])
def test_the_earlier_one_stays(file: Path, content: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret.of_file(file, _long)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert [secret.read(), secret.read()] == ["first"] * 2
    assert caplog.text.count("the earlier secret stays in use") == 1
    file.write_text("a new one")
    assert secret.read() == "a new one"


def test_one_that_was_read_before(file: Path) -> None:
    """By the settings; the file may have changed since."""
    assert Secret("read long ago", file).read() == "first"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"abc", None])
def test_a_file_that_holds_none(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=r"can't be read|is empty|4 characters"):
        Secret.of_file(file, _long)


def test_nobody_sees_it(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = Secret.of_file(file, _long)
    file.write_text("xyz")
    secret.read()
    assert "first" not in f"{secret} {secret!r}" + caplog.text
    assert "xyz" not in caplog.text
