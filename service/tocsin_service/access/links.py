"""Signed links: whoever has one may see one incident and act on it until it expires, without a token.

Messages go to places where people have no token at hand. A link carries no secret: its signature is good for one run,
one incident and one purpose.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Literal, TypeAlias
from urllib.parse import quote, urlencode

from tocsin_service.dashboard import SHELL

__all__ = ["PREFIX", "Links", "Purpose"]

Purpose: TypeAlias = Literal["incident", "picture"]

PREFIX = "/linked"
VALID_SECONDS = 14 * 86400


class Links:
    """Makes links and checks them.

    Args:
        public_url: where people reach the service, e.g. ``https://tocsin.example``.
        secret: key of the signatures, shared by all processes of the service. Secret.
        clock: Unix time in seconds.
    """

    def __init__(self, public_url: str, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._base, self._key, self._clock = public_url.rstrip("/"), secret.encode(), clock

    @classmethod
    def of(cls, public_url: str | None, secret: str | None, clock: Callable[[], float] = time.time) -> Links | None:
        """Those of a service with these settings; None if it has no address for people, or no key."""
        return cls(public_url, secret, clock) if public_url and secret else None

    def make(self, purpose: Purpose, run: str, incident: str) -> str:
        """The link ``PUBLIC_URL/linked/PURPOSE/RUN/INCIDENT?expires=...&signature=...``, good for two weeks.

        That of a picture has ``.png`` behind the incident: some programs look at the name before they look inside. It
        stays the same for a day, so that a message that is tried again is the same message.
        """
        day = 86400
        expires = (int(self._clock()) // day + 1) * day + VALID_SECONDS
        path = f"{PREFIX}/{purpose}/{_part(run)}/{_part(incident)}"
        path += ".png" if purpose == "picture" else ""
        query = urlencode({"expires": expires, "signature": self._sign(purpose, run, incident, expires)})
        return f"{self._base}{path}?{query}"

    def view(self, run: str, incident: str, *, samples: bool = False) -> str:
        """The link to the incident in the dashboard; ``samples``: to what the model wrote, there.

        It is not signed, and opens nothing: the dashboard asks for a token where the service does.
        """
        return f"{self.all_runs()}runs/{_part(run)}/incidents/{_part(incident)}{'?show=samples' if samples else ''}"

    def all_runs(self) -> str:
        """The link to the dashboard with all runs."""
        return f"{self._base}{SHELL}#/"

    def valid(self, purpose: Purpose, run: str, incident: str, expires: int, signature: str) -> bool:
        """Whether the signature is ours for just this, and hasn't expired."""
        known = self._sign(purpose, run, incident, expires)
        return hmac.compare_digest(known.encode(), signature.encode()) and self._clock() < expires

    def _sign(self, purpose: str, run: str, incident: str, expires: int) -> str:
        parts = "\x1f".join((purpose, run, incident, str(expires)))
        return hmac.new(self._key, parts.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()[:32]


def _part(text: str) -> str:
    """The text as one part of a path."""
    return quote(text, safe="", errors="replace")
