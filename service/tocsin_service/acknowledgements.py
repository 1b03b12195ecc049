"""Acknowledgements: somebody has seen an incident and looks after it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Acknowledgement"]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Who looks after an incident. It stays until the run goes; the latest of an incident counts.

    Attributes:
        run: of the incident.
        incident: its id.
        author: who has seen it.
        comment: what they say of it.
        time: Unix time in seconds.
    """

    run: str
    incident: str
    author: str
    comment: str = ""
    time: float = 0.0
