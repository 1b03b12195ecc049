"""The audit log: who changed what people are told, when and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MOST_ACTS", "Act"]

MOST_ACTS = 10_000  # the latest that a store keeps


@dataclass(frozen=True, slots=True)
class Act:
    """Something that somebody did.

    Attributes:
        time: Unix time in seconds.
        actor: name of the token used, "link" for a signed link, "local" where no token is asked for.
        action: "silence", "unsilence", "mute", "acknowledge", "rebaseline" or "configure".
        subject: what it was done to: the id of a silence, a run, an incident.
        detail: what was given, as strict JSON; no secrets.
    """

    time: float
    actor: str
    action: str
    subject: str
    detail: Mapping[str, Any] = field(default_factory=dict)
