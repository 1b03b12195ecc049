"""The files of the page: read once, served as they are, offline too: nothing is built, nothing comes from elsewhere."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["POLICY", "Representation", "StaticFile", "static_files"]

FOLDER = Path(__file__).with_name("static")
TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SMALL = 512  # bytes that packing makes no smaller


@dataclass(frozen=True, slots=True)
class Representation:
    """One way in which a file is sent.

    Attributes:
        tag: the header ETag: changes whenever the bytes do, and is another one for the same file sent in another way
            (RFC 9110, section 8.8.3.3).
    """

    data: bytes
    tag: str


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file.

    Attributes:
        plain: as it is.
        packed: by gzip; None if that gains nothing.
    """

    plain: Representation
    packed: Representation | None
    media_type: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Every file by its path below the folder, with slashes. There is no way from a request to any other file."""
    return {
        path.relative_to(FOLDER).as_posix(): _read(path)
        for path in sorted(FOLDER.rglob("*"))
        if path.is_file() and path.suffix in TYPES
    }


def _read(path: Path) -> StaticFile:
    data = path.read_bytes()
    digest = hashlib.blake2b(data, digest_size=8).hexdigest()
    packed = Representation(gzip.compress(data, mtime=0), f'"{digest}-gzip"') if len(data) > SMALL else None
    return StaticFile(Representation(data, f'"{digest}"'), packed, TYPES[path.suffix])
