"""Tokens: how a file of them is read, and that it may change while the service runs."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from tests.faults.fleet import eventually

from tocsin_service.access.tokens import MOST_TOKENS, Scope, Tokens, TokensError, parse_tokens, read_tokens
from tocsin_service.settings import SettingsError, load

TRAINER, GRAFANA, ALICE = "trainer-9f86d081", "grafana-884c7d65", "alice-9a0feaa0"
FILE = f"""
# who                     may
trainer  ingest           {TRAINER}
grafana  read             {GRAFANA}

alice    ingest,read,admin sha256:{hashlib.sha256(ALICE.encode()).hexdigest()}
bare-token-of-old
"""
READ, INGEST, ADMIN = Scope.READ, Scope.INGEST, Scope.ADMIN


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


class TestFile:
    def test_every_form(self) -> None:
        tokens = parse_tokens(FILE)
        assert [(token.name, token.scopes) for token in tokens] == [
            ("trainer", {INGEST}),
            ("grafana", {READ}),
            ("alice", {INGEST, READ, ADMIN}),
            ("token", {INGEST, READ, ADMIN}),
        ]
        assert tokens[0].digest == hashlib.sha256(TRAINER.encode()).digest()
        assert tokens[2].digest == hashlib.sha256(ALICE.encode()).digest()

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ("very-secret with-more", "NAME SCOPES TOKEN"),
            ("trainer ingest very-secret more", "NAME SCOPES TOKEN"),
            ("trainer very-secret ingest", "scopes are"),
            ("trainer ingest,very-secret 12345678", "scopes are"),
            ("trainer ingest, very-secret", "scopes are"),
            ("trainer ingest secret", "at least 8"),
            ("trainer ingest very-secret-ü", "ASCII"),
            ("trainer ingest sha256:very-secret", "hexadecimal"),
            ("trainer ingest sha256:00ff", "64"),
            ("link ingest very-secret", "name"),
            ("local ingest very-secret", "name"),
            (f"{'x' * 65} ingest very-secret", "64"),
            ("tr\x07iner ingest very-secret", "name"),
            ("first-of-all", "above already"),
            ("sha256:" + hashlib.sha256(b"first-of-all").hexdigest(), "above already"),
        ],
    )
    def test_what_is_wrong_is_told_by_its_line_and_not_repeated(self, line: str, said: str) -> None:
        with pytest.raises(TokensError, match=r"^line 3: ") as caught:
            parse_tokens(f"# two lines\nfirst-of-all\n{line}\n")
        assert said in str(caught.value)
        assert "secret" not in str(caught.value)

    def test_their_number_is_bounded(self) -> None:
        lines = [f"token-{number:05d}" for number in range(MOST_TOKENS + 1)]
        assert len(parse_tokens("\n".join(lines[:-1]))) == MOST_TOKENS
        with pytest.raises(TokensError, match="more than"):
            parse_tokens("\n".join(lines))

    @pytest.mark.parametrize(
        ("content", "said"),
        [(b"", "empty"), (b"# nothing\n", "empty"), (b"\xff-secret", "UnicodeDecodeError"), (b"x" * 2**18, "larger")],
    )
    def test_files_that_are_none(self, tmp_path: Path, content: bytes, said: str) -> None:
        (tmp_path / "tokens").write_bytes(content)
        with pytest.raises(TokensError, match=said) as caught:
            read_tokens(tmp_path / "tokens")
        assert "secret" not in str(caught.value)

    def test_the_settings_say_where_it_is_wrong(self, tmp_path: Path) -> None:
        (tmp_path / "tokens").write_text("good-token\ntrainer very-secret\n")
        with pytest.raises(SettingsError, match=r"token_file: .*tokens, line 2") as caught:
            load({"token_file": tmp_path / "tokens"}, environ={})
        assert "secret" not in str(caught.value)

    def test_a_token_is_in_no_representation(self) -> None:
        (token,) = parse_tokens("trainer ingest very-secret")
        assert "secret" not in repr(token)
        assert hashlib.sha256(b"very-secret").hexdigest() not in repr(token)


class TestRotation:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "tokens"
        path.write_text("old-token-1\n")
        return path

    def replace(self, file: Path, text: str) -> None:
        """As an operator should: at once."""
        new = file.with_suffix(".new")
        new.write_text(text)
        new.replace(file)

    def test_a_changed_file_is_read_again(self, file: Path) -> None:
        now = [0.0]
        tokens = Tokens(read_tokens(file), file, lambda: now[0])
        now[0] += 2.0
        assert tokens.find(b"old-token-1")
        self.replace(file, "old-token-1\ntrainer ingest new-token-2\n")
        assert tokens.find(b"new-token-2") is None  # it isn't looked at for each request
        now[0] += 2.0
        found = tokens.find(b"new-token-2")
        assert found is not None
        assert (found.name, found.scopes) == ("trainer", {INGEST})
        self.replace(file, "trainer ingest new-token-2\n")
        now[0] += 2.0
        assert tokens.find(b"old-token-1") is None

    @pytest.mark.parametrize("broken", ["", "# all gone", "trainer very-secret", "\udcff-secret", None])
    def test_a_broken_file_changes_nothing_and_is_told_once(
        self, file: Path, broken: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        now = [0.0]
        tokens = Tokens(read_tokens(file), file, lambda: now[0])
        if broken is None:
            file.unlink()
        else:
            file.write_bytes(broken.encode(errors="surrogateescape"))
        for _ in range(3):
            now[0] += 2.0
            assert tokens.find(b"old-token-1")
            assert tokens
        (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "stay as they were" in record.getMessage()
        assert "secret" not in caplog.text
        self.replace(file, "new-token-2")
        now[0] += 2.0
        assert tokens.find(b"new-token-2")
        assert "new-token-2" not in caplog.text

    def test_in_a_running_service(self, make_api: Any, file: Path) -> None:
        settings = load({"token_file": file}, environ={})
        api = make_api(tokens=settings.tokens, secret_files=settings.secret_files)

        def status(token: str) -> int:
            return int(api.call("GET", "/v1/runs", headers=bearer(token)).status)

        assert status("old-token-1") == 200
        self.replace(file, "grafana read new-token-2\n")
        eventually(lambda: status("new-token-2") == 200, 30, "the new token")
        assert status("old-token-1") == 401

    def test_an_emptied_file_opens_nothing(self, make_api: Any, file: Path) -> None:
        settings = load({"token_file": file, "host": "0.0.0.0"}, environ={})
        api = make_api(host="0.0.0.0", tokens=settings.tokens, secret_files=settings.secret_files)
        guard = api.service._wired.app
        os.truncate(file, 0)

        def looked_at() -> bool:
            assert api.get("/v1/runs").status == 401
            return guard._tokens._seen is not None and guard._tokens._seen[1] == 0

        eventually(looked_at, 30, "a look at the file")
        assert api.get("/v1/runs").status == 401
        assert api.call("GET", "/v1/runs", headers=bearer("old-token-1")).status == 200
