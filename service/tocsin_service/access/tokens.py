"""Who may do what: named tokens with scopes, from a file that may change while the service runs.

A token is kept as its SHA-256 alone. What a client sends is hashed and compared with all of them in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tocsin_service.identity import identity

__all__ = ["Scope", "Token", "Tokens", "TokensError", "parse_tokens", "read_tokens"]

logger = logging.getLogger(__name__)

SHORTEST = 8  # characters
LONGEST_NAME = 64
MOST_TOKENS = 256  # each is compared with what every request sends
MOST_BYTES = 2**17  # of the file
LOOK_SECONDS = 1.0  # between two looks at the file
HASHED = "sha256:"
RESERVED = frozenset({"link", "local"})  # what the audit log calls those who came without a token


class Scope(StrEnum):
    """What a token is good for."""

    INGEST = "ingest"  # send vectors and tensors, describe runs
    READ = "read"  # see what was sent and said
    ADMIN = "admin"  # change what people are told: silences, acknowledgements, new normals


class TokensError(ValueError):
    """The tokens can't be used; the message says where and why, and repeats none of them."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is known.

    Attributes:
        name: of whom it is for; in logs and in the audit log.
        scopes: what it is good for.
        digest: SHA-256 of the token.
    """

    name: str
    scopes: frozenset[Scope]
    digest: bytes = field(repr=False)


def parse_tokens(text: str) -> tuple[Token, ...]:
    """The tokens in a text with one a line: ``TOKEN`` (all scopes), or ``NAME SCOPES TOKEN``. ``#`` begins a comment.

    SCOPES are separated by commas. TOKEN is the token, or ``sha256:`` and its hexadecimal SHA-256.

    Raises:
        TokensError: a line is none of that, or a token stands twice.
    """
    tokens: list[Token] = []
    for number, line in _lines(text):
        try:
            token = _parse(line)
        except TokensError as error:
            raise TokensError(f"line {number}: {error}") from None
        if any(token.digest == one.digest for one in tokens):
            raise TokensError(f"line {number}: this token stands above already; each line needs its own")
        tokens.append(token)
        if len(tokens) > MOST_TOKENS:
            raise TokensError(f"line {number}: more than {MOST_TOKENS} tokens")
    return tuple(tokens)


def read_tokens(file: Path) -> tuple[str, ...]:
    """The lines of a token file that hold tokens, at least one; :func:`parse_tokens` takes them.

    Raises:
        TokensError: the file can't be read or used.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:  # its text may hold tokens
        raise TokensError(f"{file} can't be read: {type(error).__name__}") from None
    if len(data) > MOST_BYTES:
        raise TokensError(f"{file} is larger than {MOST_BYTES} bytes")
    try:
        tokens = parse_tokens(text)
    except TokensError as error:
        raise TokensError(f"{file}, {error}") from None
    if not tokens:
        raise TokensError(f"{file} is empty: it holds no token")
    return tuple(line for _, line in _lines(text))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers: neither blank ones nor comments."""
    for number, line in enumerate(text.split("\n"), 1):
        if (said := line.strip()) and not said.startswith("#"):
            yield number, said


def _parse(line: str) -> Token:
    match line.split():
        case [token]:
            return Token("token", frozenset(Scope), _digest(token))
        case [name, scopes, token]:
            if len(name) > LONGEST_NAME or not name.isascii() or not name.isprintable() or name in RESERVED:
                raise TokensError(
                    f"a name has at most {LONGEST_NAME} printable ASCII characters, and is not {' or '.join(RESERVED)}"
                )
            return Token(name, _scopes(scopes), _digest(token))
    raise TokensError("write TOKEN, or NAME SCOPES TOKEN, such as: trainer ingest,read 9f86d081884c7d65")


def _scopes(text: str) -> frozenset[Scope]:
    try:
        return frozenset(Scope(one) for one in text.split(","))
    except ValueError:  # not repeated: the words may stand in the wrong order
        raise TokensError(f"scopes are {', '.join(Scope)}, separated by commas without spaces") from None


def _digest(token: str) -> bytes:
    if token.startswith(HASHED):
        try:
            digest = bytes.fromhex(token.removeprefix(HASHED))
        except ValueError:
            digest = b""
        if len(digest) != hashlib.sha256().digest_size:
            raise TokensError("after sha256: come 64 hexadecimal digits; make them: printf %s TOKEN | sha256sum")
        return digest
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable():
        raise TokensError(f"a token needs at least {SHORTEST} printable ASCII characters and no spaces")
    return hashlib.sha256(token.encode()).digest()


class Tokens:
    """The tokens that count now.

    Args:
        lines: those of the start, as :func:`parse_tokens` reads them.
        file: where they come from: it is looked at again, at most once a second, and read when it has changed. While
            it can't be used, or holds none, the tokens before it stay.
        clock: seconds that only grow.

    Raises:
        TokensError: ``lines`` are wrong.
    """

    def __init__(
        self, lines: Sequence[str], file: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens = parse_tokens("\n".join(lines))
        self._file, self._clock = file, clock
        self._seen: tuple[int, ...] | None = None  # what the file was when it was read last; not at the start
        self._next_look = clock()

    def __bool__(self) -> bool:
        """Whether a token is asked for at all. It stays so for the life of the process."""
        return bool(self._tokens)

    def find(self, sent: bytes) -> Token | None:
        """The token that a client sent, None if there is none such. How long it takes doesn't tell which."""
        self._look()
        digest, found = hashlib.sha256(sent).digest(), None
        for token in self._tokens:  # all of them: no early end
            if hmac.compare_digest(digest, token.digest):
                found = token
        return found

    def _look(self) -> None:
        if self._file is None or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + LOOK_SECONDS
        seen = identity(self._file)
        if seen != self._seen:
            self._seen = seen  # what is wrong with the file is said once
            self._read(self._file)

    def _read(self, file: Path) -> None:
        try:
            tokens = parse_tokens("\n".join(read_tokens(file)))
        except TokensError as error:
            logger.error("the tokens stay as they were: %s", error)  # noqa: TRY400 - the message says it all
        else:
            if tokens != self._tokens:
                self._tokens = tokens
                names = sorted({token.name for token in tokens})
                logger.info("tokens read again: %d, of %s", len(tokens), ", ".join(names))
