"""The documentation names everything that there is to name."""

from __future__ import annotations

import re
from pathlib import Path

from tocsin_service import settings

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_setting_is_documented() -> None:
    table = (DOCS / "settings.md").read_text().split("## The client's environment")[0]
    documented = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert documented == settings._KEYS


def test_every_variable_of_the_client_is_documented() -> None:
    text = (DOCS / "client.md").read_text()
    clients = DOCS.parent / "clients" / "tocsin"
    used = {name for file in clients.rglob("*.py") for name in re.findall(r"TOCSIN_[A-Z_]+\b", file.read_text())}
    assert used
    of_the_service = {f"TOCSIN_{key.upper()}" for key in settings._KEYS}
    assert used - of_the_service <= set(re.findall(r"TOCSIN_[A-Z_]+", text))


def test_every_decision_page_has_its_three_parts() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    assert pages
    for page in pages:
        text = page.read_text()
        assert all(f"**{part}.**" in text for part in ("Context", "Decision", "Consequences")), page.name
