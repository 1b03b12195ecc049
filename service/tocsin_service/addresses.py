"""What may stand where an address is asked for. No message repeats it: it may hold a password."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

__all__ = ["check_address", "check_base", "check_private_address", "check_word", "is_loopback"]


def check_address(text: str) -> SplitResult:
    """The parts of an address of http or https.

    Raises:
        ValueError: it is none.
    """
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises on a port that is none
    except ValueError:
        parts = urlsplit("")
    plain = all(char.isprintable() and char not in ' <>"\\' for char in text)
    if not plain or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("is no address; write one such as https://example.com/hook")
    return parts


def check_base(text: str) -> SplitResult:
    """The parts of an address to which paths are added.

    Raises:
        ValueError: it is none.
    """
    try:
        parts = check_address(text)
    except ValueError:
        parts = urlsplit("")
    if not parts.hostname or parts.query or parts.fragment:
        raise ValueError("is no address that a path can follow; write one such as http://alertmanager:9093")
    return parts


def check_private_address(text: str) -> SplitResult:
    """The parts of an address to which secrets may be sent: nobody on the way can read along.

    Raises:
        ValueError: it is none.
    """
    parts = check_address(text)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError("has to begin with https:// (http:// only for this machine)")
    return parts


def check_word(text: str) -> None:
    """Whether ``text`` can stand in a header.

    Raises:
        ValueError: it can't.
    """
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("has to be printable ASCII characters without spaces")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``: "localhost" or a loopback address, with or without brackets."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
