"""Slack, as an app that answers its own messages: one thread for each incident."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tocsin_service.delivery import News, Reason, Result, Retry, Sent
from tocsin_service.delivery.digest import summary_id
from tocsin_service.delivery.posting import ATTEMPT_SECONDS, TIMEOUT_SECONDS, as_secret
from tocsin_service.delivery.slack_api import API, Called, Refused, SlackApi, check_token
from tocsin_service.delivery.slack_message import render, render_reply, render_summary, without_picture
from tocsin_service.presentation import PLAIN, Presentation
from tocsin_service.settings.secret import Secret

__all__ = ["SlackApp"]

logger = logging.getLogger(__name__)

EVENT = "tocsin_news"  # type of our messages' metadata
LOOK_BACK = 86400.0  # seconds: how old a message may be that an attempt without an answer has left
PAGE, MOST_PAGES = 200, 5  # of messages to look through
MOST_UNFINISHED = 1000
MOST_UPDATES = 20  # for one summary: Slack takes some 50 a minute
# The whole channel sees these though they are replies.
_BROADCAST = frozenset({Reason.OPENED, Reason.ESCALATED, Reason.REMINDED, Reason.RESOLVED})
# The message to reply to is gone, or takes no replies.
_NO_THREAD = frozenset({"thread_not_found", "message_not_found", "cannot_reply_to_message"})
# A picture that Slack can't load is a reason for it to refuse the whole message.
_BAD_BLOCKS = frozenset({"invalid_blocks", "invalid_blocks_format", "HTTP 400"})


@dataclass(frozen=True, slots=True)
class _Known:
    """What Slack has of an incident: its first message (channel:ts), and whether it has this piece of news."""

    thread: str | None = None
    said: bool = False


class SlackApp:
    """Writes into one channel as an app: the first message of an incident, then replies in its thread.

    The first message shows how things are now. Every message has its news' id as metadata: after an attempt that may
    or may not have arrived the app looks for the id before it says it again.

    Args:
        token: the app's bot token, with the scopes ``chat:write`` and, to look, ``channels:history`` (for a private
            channel ``groups:history``); a secret that is in no message, log or representation.
        channel: the channel's id.
        shown: language and links of the messages.
        name: of this receiver.
        api: where Slack's methods are.
        timeout: seconds for an attempt to connect, and for each wait for an answer.
        clock: Unix time in seconds.

    Raises:
        ValueError: the token can't be one.
    """

    def __init__(
        self,
        token: str | Secret,
        channel: str,
        shown: Presentation = PLAIN,
        *,
        name: str = "slack",
        api: str = API,
        timeout: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        secret = as_secret(token)
        check_token(secret.read())
        self.name = name
        self._api, self._channel, self._shown, self._clock = SlackApi(secret, api, timeout), channel, shown, clock
        # News that Slack has while the first message doesn't show it yet: their threads, by their ids.
        self._unfinished: OrderedDict[str, str] = OrderedDict()
        self._blind = False  # may not look

    def tell(self, news: News) -> Result:
        ends = time.monotonic() + ATTEMPT_SECONDS
        known = self._known(news, ends)
        if isinstance(known, Retry):
            return known
        thread, first = known.thread, known.thread is None
        if not known.said:
            posted = self._say(news, thread, ends)
            if not isinstance(posted, Sent):
                return posted
            first, thread = first or posted.thread != thread, posted.thread
        if not first and thread is not None:
            self._remember(news.id, thread)
            updated = self._update(news, thread, ends)
            if updated is not None:
                return updated
            del self._unfinished[news.id]
        return Sent(thread)

    def summarise(self, news: Sequence[News]) -> Result:
        """Makes one attempt with one message. It begins no thread: later news of an incident have one of their own.

        The first messages of the incidents, if they have any, show how things are now; not all if they are many.
        """
        ends = time.monotonic() + ATTEMPT_SECONDS
        told = summary_id(news)
        if any(one.again for one in news):
            known = self._look(told, None, None, ends)
            if isinstance(known, Retry):
                return known
            if known.said:
                return Sent()
        posted = self._post(render_summary(news, self._shown), {"id": told}, None, ends)
        if not isinstance(posted, Sent):
            return _result(posted)
        threads = [(one, one.thread) for one in news if one.thread is not None]
        for one, thread in threads[:MOST_UPDATES]:
            if self._update(one, thread, ends) is not None:
                break  # Slack has trouble, or the time is over: the summary says it all
        return Sent()

    def close(self) -> None:
        self._api.close()

    # What Slack has already.

    def _known(self, news: News, ends: float) -> _Known | Retry:
        if (thread := self._unfinished.get(news.id)) is not None:
            return _Known(thread, said=True)
        if news.again:
            return self._look(news.id, news.incident.id, news.thread, ends)
        return _Known(news.thread)

    def _look(self, told: str, incident: str | None, thread: str | None, ends: float) -> _Known | Retry:
        """Looks in the thread, or in the channel if there is none, for a message with this id or of this incident."""
        known = _Known(thread)
        for page in self._pages(thread, ends):
            if isinstance(page, Retry):
                return page
            if isinstance(page, Refused):
                if not self._blind:
                    logger.warning("%s can't look for what it has sent and may say it twice: %s", self.name, page.error)
                self._blind = True
                return known
            for message in page["messages"]:
                payload = _payload(message)
                if payload.get("id") == told:
                    return _Known(thread or self._thread_of(message), said=True)
                if thread is None and incident is not None and payload.get("incident") == incident:
                    known = _Known(self._thread_of(message))
        return known

    def _pages(self, thread: str | None, ends: float) -> Iterator[Called]:
        channel, ts = self._split(thread)
        method, arguments = "conversations.history", {"channel": channel, "include_all_metadata": "true"}
        arguments |= {"oldest": f"{self._clock() - LOOK_BACK:.6f}", "limit": str(PAGE)}
        if ts is not None:
            method, arguments = "conversations.replies", arguments | {"ts": ts}
        for _ in range(MOST_PAGES):
            page = self._api.get(method, arguments, ends)
            if not isinstance(page, dict):
                yield page
                return
            page["messages"] = [message for message in page.get("messages") or () if isinstance(message, dict)]
            yield page
            cursor = (page.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return
            arguments = arguments | {"cursor": str(cursor)}

    def _thread_of(self, message: Mapping[str, Any]) -> str:
        return f"{self._channel}:{message.get('thread_ts') or message.get('ts')}"

    def _split(self, thread: str | None) -> tuple[str, str | None]:
        if thread is None:
            return self._channel, None
        channel, _, ts = thread.partition(":")
        return channel, ts

    # Saying it.

    def _say(self, news: News, thread: str | None, ends: float) -> Result:
        metadata = {"id": news.id, "incident": news.incident.id}
        message = render(news, self._shown) if thread is None else render_reply(news, self._shown)
        posted = self._post(message, metadata, thread, ends, broadcast=news.reason in _BROADCAST)
        if isinstance(posted, Refused) and thread is not None and posted.error in _NO_THREAD:
            posted = self._post(render(news, self._shown), metadata, None, ends)
        return _result(posted)

    def _post(
        self,
        message: dict[str, Any],
        metadata: dict[str, Any],
        thread: str | None,
        ends: float,
        *,
        broadcast: bool = False,
    ) -> Sent | Refused | Retry:
        channel, ts = self._split(thread)
        message |= {"channel": channel, "metadata": {"event_type": EVENT, "event_payload": metadata}}
        if ts is not None:
            message |= {"thread_ts": ts, "reply_broadcast": broadcast}
        told = self._with_or_without_picture("chat.postMessage", message, ends)
        if not isinstance(told, dict):
            return told
        return Sent(thread or f"{told.get('channel', channel)}:{told['ts']}" if told.get("ts") else thread)

    def _update(self, news: News, thread: str, ends: float) -> Retry | None:
        """Lets the first message show how things are now. If Slack refuses that, the replies say it all the same."""
        channel, ts = self._split(thread)
        message = render(news, self._shown) | {"channel": channel, "ts": ts}
        told = self._with_or_without_picture("chat.update", message, ends)
        if isinstance(told, Refused):
            logger.warning("%s can't update a message: %s", self.name, told.error)
        return told if isinstance(told, Retry) else None

    def _with_or_without_picture(self, method: str, message: dict[str, Any], ends: float) -> Called:
        told = self._api.post(method, message, ends)
        if isinstance(told, Refused) and told.error in _BAD_BLOCKS:
            bare = without_picture(message)
            return told if bare is None else self._api.post(method, bare, ends)
        return told

    def _remember(self, told: str, thread: str) -> None:
        self._unfinished[told] = thread
        while len(self._unfinished) > MOST_UNFINISHED:
            self._unfinished.popitem(last=False)


def _payload(message: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = message.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("event_type") != EVENT:
        return {}
    payload = metadata.get("event_payload")
    return payload if isinstance(payload, dict) else {}


def _result(told: Sent | Refused | Retry) -> Result:
    return told.result() if isinstance(told, Refused) else told
