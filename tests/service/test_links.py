"""Signed links: good for one purpose, one run and one incident, until they expire."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin_service.access.links import VALID_SECONDS, Links, Purpose

DAY = 86400
NOW = 1000 * DAY + 500.0
LINKS = Links("https://tocsin.example/", "a secret that nobody knows", lambda: NOW)


def taken_apart(link: str) -> tuple[str, int, str]:
    parts = urlsplit(link)
    query = parse_qs(parts.query)
    return parts.path, int(query["expires"][0]), query["signature"][0]


def test_the_shape_of_a_link() -> None:
    link = LINKS.make("incident", "exp/7 ü", "0123")
    assert link.startswith("https://tocsin.example/linked/incident/exp%2F7%20%C3%BC/0123?expires=")
    assert urlsplit(LINKS.make("picture", "run", "0123")).path == "/linked/picture/run/0123.png"


@given(run=st.text(min_size=1), incident=st.text(alphabet="0123456789abcdef", min_size=1))
def test_what_is_made_is_valid(run: str, incident: str) -> None:
    purposes: tuple[Purpose, Purpose] = ("incident", "picture")
    run = run.encode(errors="replace").decode()
    for purpose in purposes:
        path, expires, signature = taken_apart(LINKS.make(purpose, run, incident))
        assert unquote(path.split("/")[3]) == run
        assert LINKS.valid(purpose, run, incident, expires, signature)


@pytest.mark.parametrize(
    ("purpose", "run", "incident", "later", "signature"),
    [
        ("picture", "run", "0123", 0, None),
        ("incident", "other", "0123", 0, None),
        ("incident", "run", "0124", 0, None),
        ("incident", "run", "0123", 1, None),
        ("incident", "run", "0123", 0, ""),
        ("incident", "run", "0123", 0, "ü"),
        ("incident", "run", "0123", 0, "0" * 32),
        ("incident", "run\x1f0123", "", 0, None),
    ],
)
def test_nothing_else_is_valid(purpose: Purpose, run: str, incident: str, later: int, signature: str | None) -> None:
    _, expires, good = taken_apart(LINKS.make("incident", "run", "0123"))
    assert not LINKS.valid(purpose, run, incident, expires + later, good if signature is None else signature)


def test_another_secret_makes_other_links() -> None:
    _, expires, signature = taken_apart(LINKS.make("incident", "run", "0123"))
    assert not Links("", "another secret", lambda: NOW).valid("incident", "run", "0123", expires, signature)


def test_when_it_expires() -> None:
    now = [NOW]
    links = Links("", "secret", lambda: now[0])
    _, expires, signature = taken_apart(links.make("incident", "run", "0123"))
    assert VALID_SECONDS <= expires - NOW <= VALID_SECONDS + DAY
    now[0] = expires - 1
    assert links.valid("incident", "run", "0123", expires, signature)
    now[0] = expires
    assert not links.valid("incident", "run", "0123", expires, signature)


def test_a_message_that_is_tried_again_has_the_same_link() -> None:
    now = [1000.0 * DAY]
    links = Links("", "secret", lambda: now[0])
    first = links.make("incident", "run", "0123")
    now[0] += DAY - 1
    assert links.make("incident", "run", "0123") == first
    now[0] += 1
    assert links.make("incident", "run", "0123") != first


@pytest.mark.parametrize(("url", "secret"), [(None, None), ("https://t.example", None), (None, "secret")])
def test_no_links_without_an_address_or_a_key(url: str | None, secret: str | None) -> None:
    assert Links.of(url, secret) is None
