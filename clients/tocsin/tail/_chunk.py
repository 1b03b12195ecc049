"""What goes out at once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tocsin.readers import Vector
from tocsin.tail._place import Place

__all__ = ["Chunk", "sequence_of"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Vectors of one file.

    Attributes:
        vectors: in the order of the file.
        sequences: what tells each of them from every other one of its run: the same when it is sent again.
        time: Unix time in seconds for vectors that have none.
        before: the place as it is to be written down before they are sent.
        after: the place once they are delivered.
        framework: the training framework that writes such files, if that can be told.
    """

    vectors: list[Vector]
    sequences: list[str]
    time: float
    before: Place
    after: Place
    framework: str | None


def sequence_of(key: str, generation: int, mark: str) -> str:
    """The sequence of the vector that stands at ``mark`` in a file."""
    parts = "\0".join((key, str(generation), mark)).encode(errors="surrogatepass")
    return f"tail-{hashlib.blake2b(parts, digest_size=12).hexdigest()}"
