"""Alertmanager, by its API v2: what fires, by the same labels as Prometheus' rules give it.

Source of the format: the operation ``postAlerts`` of
https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tocsin_detectors.alerts import Alert, Incident, Severity, State
from tocsin_detectors.texts import translate
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.delivery import Failed, News, Result, Retry, Sent
from tocsin_service.delivery.digest import web_address
from tocsin_service.delivery.ledger import RESEND_SECONDS, Ledger, Message
from tocsin_service.delivery.posting import ATTEMPT_SECONDS, TIMEOUT_SECONDS, Poster
from tocsin_service.firing import Firing, Labels, Subject, alertname, label
from tocsin_service.presentation import PLAIN, Presentation
from tocsin_service.settings.secret import Secret
from tocsin_service.silences import Silence
from tocsin_service.store import StoreUnavailable
from tocsin_service.words import Words

__all__ = ["Alertmanager", "render"]

PATH = "/api/v2/alerts"
BATCH = 200  # alerts in one POST: well under a megabyte
SHOWN = "shown"  # as the name of a first message: Alertmanager has been shown the incident
TEXT_LIMIT = 2000  # characters of an annotation
LINE_LIMIT = 300
MEMBERS_SHOWN = 20


class Alertmanager:
    """Shows one Alertmanager what fires; whom it tells, and when, is its own business.

    :meth:`tell` shows an incident when there are news of it. :meth:`show` is for everything that fires, again and
    again: see :class:`~tocsin_service.delivery.resend.Resend`. Both may be called at the same time.

    Args:
        address: of the server, e.g. ``http://alertmanager:9093``; a secret, as it may hold a password.
        shown: language and links of the annotations.
        timeout: seconds for an attempt to connect, and for each wait for an answer.
        clock: Unix time in seconds.
        name: in the outbox, in routes and in the metrics.

    Attributes:
        resend: seconds between two calls of :meth:`show`.
    """

    resend = RESEND_SECONDS

    def __init__(
        self,
        address: str | Secret,
        shown: Presentation = PLAIN,
        timeout: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.time,
        *,
        name: str = "alertmanager",
    ) -> None:
        self.name = name
        self._poster = Poster(address, "check Alertmanager's address and its log", timeout, PATH)
        self._shown, self._clock = shown, clock
        self._silences: Callable[[], Sequence[Silence]] = tuple
        self._ledger, self._lock = Ledger(self.resend), threading.Lock()

    def heed(self, silences: Callable[[], Sequence[Silence]]) -> None:
        """From now on single alerts that one of ``silences()`` matches are not shown; none are heeded before."""
        self._silences = silences

    def tell(self, news: News) -> Result:
        return self.summarise([news])

    def summarise(self, news: Sequence[News]) -> Result:
        """Shows all of it: to read it is Alertmanager's task."""
        now = self._clock()
        try:
            silences = self._silences()
        except StoreUnavailable:
            return Retry("the silences can't be read")
        with self._lock:
            for one in news:
                self._note(one, silences, now)
            concerned = {labels for one in news for labels in self._ledger.of_incident(one.incident.id)}
            due = self._ledger.due(now, concerned)
        return self._push(due, now, time.monotonic() + ATTEMPT_SECONDS)

    def show(
        self, found: Iterable[Firing], silences: Sequence[Silence], acknowledged: Mapping[str, Acknowledgement]
    ) -> Result | None:
        """Shows everything that fires, and what has ended lately; None if there is nothing to show.

        Args:
            found: everything that fires and is for this receiver.
            silences: those that there are.
            acknowledged: who looks after an incident, by the incident's id.
        """
        now = self._clock()
        messages: dict[Labels, Message] = {}
        for one in found:
            messages |= _messages(one, silences, now, acknowledged.get(one.incident.id), self._shown)
        with self._lock:
            self._ledger.fire(messages)
            self._ledger.keep(messages, now)
            due = self._ledger.due(now)
        result = self._push(due, now) if due else None
        with self._lock:
            self._ledger.forget(now)
        return result

    def clear(self) -> None:
        """Forgets what it has shown: another process serves this receiver now."""
        with self._lock:
            self._ledger.clear()

    def close(self) -> None:
        self._poster.close()

    def _note(self, news: News, silences: Sequence[Silence], now: float) -> None:
        incident = news.incident
        over = incident.state is State.RESOLVED
        members = news.alerts if over else tuple(one for one in news.alerts if one.state is State.FIRING)
        firing = Firing(incident, members, news.config.labels or {})
        messages = _messages(firing, silences, now, news.acknowledged, self._shown)
        known = self._ledger.of_incident(incident.id)
        if not over:
            self._ledger.fire(messages)
            known -= messages.keys()
        elif not known and news.thread is not None:
            self._ledger.end_shown(messages, now)
        elif not known and incident.severity is Severity.CRITICAL:
            self._ledger.fire(messages)
            known = set(messages)
        self._ledger.end(known, now)

    def _push(self, parts: Iterable[Mapping[Labels, Message]], now: float, ends: float | None = None) -> Result:
        """Sends one part after the other, until ``ends`` (monotonic) at the latest.

        One that is refused for good doesn't keep back the others.
        """
        refused: Failed | None = None
        for batch in _batches(parts):
            body = json.dumps(list(batch.values()), allow_nan=False).encode()
            match self._poster.post(body, ends=ends):
                case Retry() as result:
                    return result
                case Failed() as result:
                    refused = result
                case Sent():
                    with self._lock:
                        self._ledger.sent(batch, now)
        return refused or Sent(SHOWN)


def render(
    subject: Subject,
    incident: Incident,
    alerts: Sequence[Alert],
    acknowledged: Acknowledgement | None = None,
    shown: Presentation = PLAIN,
) -> Message:
    """An alert or incident as Alertmanager takes it, without its times.

    Args:
        subject: one of ``alerts``, or the ``incident`` itself.
        incident: the incident.
        alerts: its members in order of onset.
        acknowledged: who looks after it.
        shown: language and links.
    """
    labels = {"alertname": alertname(subject.severity), **label(subject)._asdict()}
    said = _of_incident(incident, alerts, shown) if isinstance(subject, Incident) else _of_alert(subject, shown)
    good = incident.last_good_step
    said["last_good_step"] = Words(shown.lang)("none: wrong from the start") if good is None else str(good)
    if acknowledged is not None:
        said["acknowledged_by"] = ": ".join(filter(None, (acknowledged.author, acknowledged.comment)))
    pages = {"dashboard": shown.view(incident), "samples": shown.samples(incident, alerts)}
    said |= {name: web_address(page, TEXT_LIMIT) or "" for name, page in pages.items()}
    annotations = {name: _cut(text, TEXT_LIMIT) for name, text in said.items() if text}
    link = shown.link("incident", incident)
    return {"labels": labels, "annotations": annotations, **({} if link is None else {"generatorURL": link})}


def _batches(parts: Iterable[Mapping[Labels, Message]]) -> Iterator[dict[Labels, Message]]:
    for part in parts:
        items = list(part.items())
        yield from (dict(items[start : start + BATCH]) for start in range(0, len(items), BATCH))


def _messages(
    firing: Firing,
    silences: Sequence[Silence],
    now: float,
    acknowledged: Acknowledgement | None,
    shown: Presentation,
) -> dict[Labels, Message]:
    silenced = firing.silenced(silences, now)
    return {
        label(one): render(one, firing.incident, firing.alerts, acknowledged, shown)
        for one in firing.subjects
        if alertname(one.severity) is not None and label(one) not in silenced
    }


def _of_alert(alert: Alert, shown: Presentation) -> dict[str, str]:
    say, told = Words(shown.lang), shown.alert(alert)
    since = say("since step {step}", step=alert.onset_step)
    return {
        "summary": f"{alert.rule}{say(': ')}{alert.source}{say(', ')}{since}",
        "description": told["evidence"]["detail"] or told["summary"],
        **_advice(told),
        "onset_step": str(alert.onset_step),
    }


def _of_incident(incident: Incident, alerts: Sequence[Alert], shown: Presentation) -> dict[str, str]:
    say, told = Words(shown.lang), shown.incident(incident)
    since = say("since step {step}", step=incident.onset_step)
    details = ((one, translate(one.evidence.detail, shown.lang)) for one in alerts[:MEMBERS_SHOWN])
    lines = [f"{one.source}{say(': ')}{detail} ({one.rule})" for one, detail in details]
    if len(alerts) > MEMBERS_SHOWN:
        lines.append(say("… and {count} more", count=len(alerts) - MEMBERS_SHOWN))
    return {
        "summary": f"{told['title'] or incident.rule}{say(', ')}{since}",
        "description": "\n".join(_cut(line, LINE_LIMIT) for line in lines),
        **_advice(told),
        "onset_step": str(incident.onset_step),
    }


def _advice(told: Mapping[str, object]) -> dict[str, str]:
    remedies = told["remedies"]
    assert isinstance(remedies, list)  # noqa: S101 - as JSON has it
    return {
        "meaning": str(told["meaning"] or ""),
        "remedies": "\n".join(f"{number}. {text}" for number, text in enumerate(remedies, 1)),
        "runbook": str(told["runbook"] or ""),
    }


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
