"""Everybody else, by way of the library Apprise: Feishu/Lark, DingTalk, WeCom, e-mail, Discord, Telegram and more."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from tocsin_detectors.alerts import Severity
from tocsin_service.delivery import News, Reason, Result, Retry, Sent
from tocsin_service.delivery.digest import summary_id
from tocsin_service.delivery.plain import text_of, text_of_many
from tocsin_service.delivery.posting import ATTEMPT_SECONDS, as_secret
from tocsin_service.presentation import PLAIN, Presentation
from tocsin_service.settings.secret import Secret

__all__ = ["Apprise", "check_urls"]

MOST_UNFINISHED = 1000
MOST_TARGETS = 50


class Apprise:
    """Sends plain text to Apprise URLs, each by itself: one that fails doesn't double the message for the others.

    Apprise says only whether it has worked, so a failure of any kind is tried again. Who has a message that others
    still lack is known as long as this object lives.

    Args:
        urls: Apprise URLs, one a line; empty lines and those that begin with # don't count. Secret.
        shown: language and links of the messages.
        timeout: seconds for all of an attempt; a URL that takes longer goes on in the background.
        name: of this receiver.

    Raises:
        ValueError: Apprise is not installed, or a line is no URL that it can send to.
    """

    def __init__(
        self, urls: str | Secret, shown: Presentation = PLAIN, timeout: float = ATTEMPT_SECONDS, name: str = "apprise"
    ) -> None:
        self.name = name
        self._urls, self._shown, self._timeout = as_secret(urls), shown, timeout
        self._read = self._urls.read()
        self._targets = _targets(self._read)
        # Who has news that not everybody has yet, by the news' id.
        self._having: OrderedDict[str, set[str]] = OrderedDict()

    def tell(self, news: News) -> Result:
        return self._send(news.id, *text_of(news, self._shown), _kind([news]))

    def summarise(self, news: Sequence[News]) -> Result:
        return self._send(summary_id(news), *text_of_many(news, self._shown), _kind(news))

    def close(self) -> None:
        """Nothing is kept open."""

    def _send(self, told: str, title: str, text: str, kind: str) -> Result:
        self._reload()
        having = self._having.setdefault(told, set())
        while len(self._having) > MOST_UNFINISHED:
            self._having.popitem(last=False)
        missing = [target for target in self._targets if target.url not in having]
        ends = time.monotonic() + self._timeout
        for target in missing:
            target.begin(having, title, text, kind)
        for target in missing:
            target.wait(ends - time.monotonic())
        without = [target.label for target in missing if target.url not in having]
        if without:
            return Retry(f"refused, or not reached: {', '.join(without)}"[:300])
        self._having.pop(told, None)
        return Sent()

    def _reload(self) -> None:
        if (now := self._urls.read()) == self._read:
            return
        self._read = now
        known = {target.url: target for target in self._targets}
        self._targets = [known.get(target.url, target) for target in _targets(now)]


class _Target:
    """One URL, to which one thread at a time sends."""

    def __init__(self, url: str, label: str, notify: Callable[..., object]) -> None:
        self.url, self.label, self._notify = url, label, notify
        self._thread: threading.Thread | None = None

    def begin(self, having: set[str], title: str, text: str, kind: str) -> None:
        """Sends in the background, unless an earlier message hangs; adds the URL to ``having`` once it is sent."""
        if (self._thread is not None and self._thread.is_alive()) or self.url in having:
            return
        self._thread = threading.Thread(target=self._send, args=(having, title, text, kind), daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(max(0.0, seconds))

    def _send(self, having: set[str], title: str, text: str, kind: str) -> None:
        try:
            sent = bool(self._notify(title=title, body=text, notify_type=kind, body_format="text"))
        except Exception:  # noqa: BLE001 - a plugin's bug is one more way to fail, and its text may hold the URL
            sent = False
        if sent:
            having.add(self.url)


def check_urls(text: str) -> None:
    """Raises :class:`ValueError` if ``text`` isn't what :class:`Apprise` takes; the message names the line alone."""
    _targets(text)


def _targets(text: str) -> list[_Target]:
    library = _library()
    look = library.AppriseAsset(app_id="Tocsin", app_desc="The alarm bell of LLM reinforcement learning")
    found: dict[str, _Target] = {}
    for number, line in enumerate(text.splitlines(), 1):
        url = line.strip()
        if not url or url.startswith("#") or url in found:
            continue
        plugin = library.Apprise.instantiate(url, asset=look)
        if plugin is None:
            raise ValueError(f"line {number} is no URL that Apprise can send to")
        if plugin.overflow_mode == library.OverflowMode.UPSTREAM:
            plugin.overflow_mode = library.OverflowMode.TRUNCATE  # what is too long would be refused for ever
        sender = library.Apprise(asset=look)
        sender.add(plugin)
        schema = url.partition(":")[0].lower()
        found[url] = _Target(url, f"{schema if schema.isalnum() else 'url'} in line {number}", sender.notify)
    if not found or len(found) > MOST_TARGETS:
        raise ValueError(f"there have to be 1 to {MOST_TARGETS} URLs for Apprise, one a line")
    return list(found.values())


def _library() -> Any:
    try:
        import apprise  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise ValueError("apprise is not installed; install it with: pip install 'tocsin[apprise]'") from None
    # Both log addresses, which are secrets here, and what is sent.
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    return apprise


def _kind(news: Sequence[News]) -> str:
    """Apprise's name for how it is: some receivers show it as a colour."""
    if all(one.reason is Reason.RESOLVED for one in news):
        return "success"
    worst = max(one.incident.severity.rank for one in news)
    return "failure" if worst == Severity.CRITICAL.rank else "warning"
