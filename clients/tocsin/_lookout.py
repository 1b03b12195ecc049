"""The thread that asks the server what fires, for a trainer that wants to hear of it. Nobody asks, no thread."""

from __future__ import annotations

import json
import threading
from time import monotonic

from tocsin._guard import debugging, guarded, say
from tocsin._settings import Settings
from tocsin._tally import Tally
from tocsin._transport import Address, Transport, Unreachable
from tocsin._watch import Steps, Told, Watch, Wishes

__all__ = ["Lookout"]

# Seconds from a delivery to the looks that follow it, until the next delivery begins anew: the service judges within
# milliseconds, but it may be behind.
_LOOKS = (0.1, 0.5, 2.0, 10.0)
_PACE = 0.1


def _nothing() -> None:
    return None


class Lookout:
    """Looks after deliveries, at a bounded pace, on a thread of its own: a callback that takes long delays no vector.

    Args:
        settings: of the run.
        tally: says each kind of trouble once.
        wishes: what the trainer asked for; may be replaced at any time by :meth:`ask`.
    """

    def __init__(self, settings: Settings, tally: Tally, wishes: Wishes) -> None:
        self.wishes = wishes
        self._settings, self._tally = settings, tally
        # A Condition's lock is re-entrant: a signal handler may log while its own thread is in here.
        self._changed = threading.Condition()
        self._watch = Watch()
        self._steps = Steps()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._sent = False
        self._round = len(_LOOKS)  # index of the next look after the latest delivery
        self._told = 0.0  # when that delivery was, by the monotonic clock
        self._looked = 0.0

    def ask(self, wishes: Wishes) -> None:
        """Takes new wishes, and looks what fires already: that is none of this process's doing."""
        self.wishes = wishes
        if isinstance(self._settings.address, Address):
            self._start()
        else:
            self._tally.warn("watch", "nothing can stop it or save a checkpoint: over Redis there is nobody to ask", "")

    def note(self, step: object) -> None:
        """Says that a vector is on its way. Runs on the trainer's thread; waits for nobody."""
        if not self.wishes.watching or not isinstance(self._settings.address, Address):
            return
        if isinstance(step, int):
            self._steps = self._steps.including(step)
        if self._thread is None or self._closed:
            self._start()

    def sending(self) -> None:
        """Says that from now on the server may have got vectors."""
        self._sent = True

    def delivered(self) -> None:
        """Says that the server has got vectors."""
        with self._changed:
            if self._round:  # else a look is due already: a quick trainer must not put it off for ever
                self._round, self._told = 0, monotonic()
                self._changed.notify_all()

    def close(self) -> None:
        """Ends the thread; a later vector starts another."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def should_stop(self) -> bool:
        """Whether there was an incident to stop for."""
        return self._watch.stop is not None

    def take_checkpoint(self) -> bool:
        """Whether an incident asks for a checkpoint; True once for each."""
        with self._changed:
            return self._watch.take_checkpoint() is not None

    def fires(self, rank: int) -> bool:
        """Whether an incident of at least this rank fires, as last seen."""
        return self._watch.worst >= rank

    def _start(self) -> None:
        with self._changed:
            self._closed = False
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._work, name="tocsin-lookout", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None
                raise

    def _work(self) -> None:
        assert isinstance(self._settings.address, Address)  # noqa: S101 note() starts it for nothing else
        transport = Transport(self._settings.address, self._settings.options.timeout)
        try:
            self._attempt(transport, first=True)
            while self._await():
                self._attempt(transport, first=False)
        finally:
            transport.close()
            with self._changed:
                self._thread = None

    def _await(self) -> bool:
        """Waits until a look is due; False when the thread is to end."""
        with self._changed:
            while not self._closed:
                if self._round == len(_LOOKS):
                    self._changed.wait()
                    continue
                due = max(self._told + _LOOKS[self._round], self._looked + _PACE)
                left = due - monotonic()
                if left <= 0:
                    self._round += 1
                    return True
                self._changed.wait(left)
            return False

    def _attempt(self, transport: Transport, *, first: bool) -> None:
        """One look; whatever goes wrong, the next delivery brings another."""
        try:
            self._look(transport, first=first)
        except Unreachable:
            pass  # nothing is delivered either, and the sender says so
        except Exception as error:
            if debugging():
                raise
            self._tally.warn("lookout", "can't see what the server says of this run, tried again", repr(error))
        self._looked = monotonic()

    def _look(self, transport: Transport, *, first: bool) -> None:
        wishes = self.wishes
        incidents = self._fetch(transport, "incidents")
        alerts = self._fetch(transport, "alerts") if wishes.on_alert else []
        if incidents is None or alerts is None:
            return
        with self._changed:
            if first and not self._sent:
                self._watch.forgive(incidents, alerts)
            acting = self._watch.see(incidents, self._steps, wishes)
            news = self._watch.news(alerts, self._steps)
        for incident in acting:
            self._say(incident)
        for alert in news:
            on_alert(wishes, alert)

    def _fetch(self, transport: Transport, what: str) -> list[Told] | None:
        """What fires now; None if the server doesn't tell."""
        path = f"{self._settings.path}/{what}?state=firing&limit=1000"
        answer = transport.request("GET", path, None, {"User-Agent": "tocsin"})
        if answer.status == 404:
            return []  # the run begins to exist with its first vector
        if answer.status != 200:
            self._tally.warn(f"lookout {answer.status}", "the server doesn't say what fires", answer.told())
            return None
        return list(json.loads(answer.body)[what])

    def _say(self, incident: Told) -> None:
        good = incident.get("last_good_step")
        say(
            "run %s: %s incident since step %s: %s; last good step: %s%s",
            self._settings.run,
            incident["severity"],
            incident.get("onset_step"),
            incident.get("title"),
            "none" if good is None else good,
            "; the training is asked to stop" if self._watch.stop is incident else "; a checkpoint is asked for",
        )


@guarded(_nothing)
def on_alert(wishes: Wishes, alert: Told) -> None:
    """The trainer's own callback: what it raises goes no further."""
    if wishes.on_alert is not None:
        wishes.on_alert(alert)
