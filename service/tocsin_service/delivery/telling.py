"""Everybody who is told of incidents by this process: receivers made from settings and from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from tocsin_detectors.alerts import Severity
from tocsin_service import pictures
from tocsin_service.access.links import Links
from tocsin_service.delivery.alertmanager import Alertmanager
from tocsin_service.delivery.files import Plan, ReceiversError, make_receiver, read_plan
from tocsin_service.delivery.loop import Delivery
from tocsin_service.delivery.making import KINDS, Described, Given, Surroundings
from tocsin_service.delivery.policy import Policy
from tocsin_service.delivery.resend import Resend
from tocsin_service.delivery.routing import is_for
from tocsin_service.exposition import Exposition
from tocsin_service.firing import Firing
from tocsin_service.presentation import Presentation
from tocsin_service.settings import Settings
from tocsin_service.settings.secret import Secret
from tocsin_service.store import Store

__all__ = ["Telling", "plan_of"]


class Telling:
    """The deliveries to all receivers.

    Args:
        settings: which receivers there are, and how long a stop may take.
        store: has the outbox.
        exposition: where attempts are counted.
        clock: Unix time in seconds.
        serves: where several processes share the store: whether the receiver of that name is this one's to serve.

    Raises:
        ReceiversError: the file of receivers, or one with a secret that it names, can't be used.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        exposition: Exposition,
        clock: Callable[[], float],
        serves: Callable[[str], bool] | None = None,
    ) -> None:
        plan, around = plan_of(settings), Surroundings(_presentation(settings, clock), clock)
        self.names, self._stop_seconds = plan.names, settings.stop_seconds
        made = [(described, make_receiver(described, around, settings.receivers)) for described in plan.receivers]
        self._deliveries = [
            Delivery(store, receiver, exposition, clock, policy=described.policy, routes=plan.routes, serves=serves)
            for described, receiver in made
        ]
        self._resends = [
            Resend(store, receiver, exposition, partial(_audible, plan, described, clock), serves)
            for described, receiver in made
            if isinstance(receiver, Alertmanager)
        ]

    def start(self, stack: ExitStack) -> None:
        """Starts telling; ``stack`` stops it again, when what is due has been told or the time is over."""
        for delivery in self._deliveries:
            delivery.start()
            stack.callback(delivery.stop, self._stop_seconds)
        for resend in self._resends:
            resend.start()
            stack.callback(resend.stop, self._stop_seconds)

    def wake(self) -> None:
        """Says that there may be more to tell, or less to wait for."""
        for delivery in self._deliveries:
            delivery.wake()


def plan_of(settings: Settings) -> Plan:
    """The receivers of the settings themselves, each called by its kind, and what the file of receivers says.

    Raises:
        ReceiversError: the file can't be used, or a secret of the settings.
    """
    simple = tuple(_simple(settings))
    if settings.receivers is None:
        return Plan(simple)
    written = read_plan(settings.receivers, [one.name for one in simple])
    return Plan((*simple, *written.receivers), written.routes)


def _simple(settings: Settings) -> Iterator[Described]:
    options: dict[str, dict[str, str | None]] = {
        "slack": {
            "webhook": settings.slack_webhook,
            "token": settings.slack_token,
            "channel": settings.slack_channel,
        },
        "webhook": {"address": settings.webhook, "secret": settings.webhook_secret},
        "alertmanager": {"address": settings.alertmanager},
    }
    for kind, values in options.items():
        given: dict[str, Given] = {name: _secret(settings, kind, name, text) for name, text in values.items() if text}
        if given.keys() - KINDS[kind].optional:
            yield Described(kind, kind, given, Policy(mirrors=KINDS[kind].mirrors))


def _secret(settings: Settings, kind: str, name: str, text: str) -> Secret:
    """The text, and where it was read from: it is read again when that file changes."""
    key = kind if name == "address" else f"{kind}_{name}"
    try:
        return Secret(text, settings.secret_files.get(key), KINDS[kind].options[name].check)
    except ValueError as error:
        raise ReceiversError(f"{key}: {error}") from None


def _presentation(settings: Settings, clock: Callable[[], float]) -> Presentation:
    links = Links.of(settings.public_url, settings.link_secret, clock)
    drawn = settings.pictures and pictures.installed()
    return Presentation(settings.lang, settings.runbook_base, links, drawn, settings.rollout_dir)


def _audible(plan: Plan, described: Described, clock: Callable[[], float], firing: Firing) -> bool:
    """Whether a receiver that mirrors what fires is to show this now."""
    incident = firing.incident
    quiet = incident.severity is not Severity.CRITICAL and described.policy.quiet_until(clock()) is not None
    return not quiet and is_for(plan.routes, described.name, incident, firing.alerts, firing.labels)
