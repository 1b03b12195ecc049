"""Who can be told, and who is told of what."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin_service.delivery.making import Described
from tocsin_service.delivery.routing import Route

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Who can be told, and who is told of what.

    Attributes:
        routes: in order; none: everybody is told of everything.
    """

    receivers: tuple[Described, ...] = ()
    routes: tuple[Route, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all receivers."""
        return tuple(one.name for one in self.receivers)
