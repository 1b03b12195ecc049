"""The kinds of receivers: what an operator has to say of each, and how it is made from that."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from tocsin_detectors.texts import Language
from tocsin_service.addresses import check_base, check_private_address, check_word
from tocsin_service.delivery import Receiver
from tocsin_service.delivery.alertmanager import Alertmanager
from tocsin_service.delivery.apprise import Apprise, check_urls
from tocsin_service.delivery.policy import Policy
from tocsin_service.delivery.slack import Slack
from tocsin_service.delivery.slack_api import API
from tocsin_service.delivery.slack_app import SlackApp
from tocsin_service.delivery.webhook import Webhook
from tocsin_service.presentation import PLAIN, Presentation
from tocsin_service.settings.secret import Secret

__all__ = ["KINDS", "Described", "Given", "Kind", "Option", "Surroundings", "make"]

# What was given for an option: the text itself, the file that holds it, or what the settings have read already.
Given: TypeAlias = str | Path | Secret


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What receivers know of the service.

    Attributes:
        shown: how they speak.
        clock: Unix time in seconds.
    """

    shown: Presentation = PLAIN
    clock: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class Option:
    """Something to say of a receiver.

    Attributes:
        secret: it may not stand in the file of receivers: only the name of a file that holds it, as ``NAME_file``.
        public: it never is a secret, so it can't stand in a file of its own.
        check: raises :class:`ValueError` for a text that can't be it; the message doesn't repeat the text.
    """

    secret: bool = True
    public: bool = False
    check: Callable[[str], object] = str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of receivers.

    Attributes:
        options: by their names.
        forms: names of options that are needed together; one of these forms has to be chosen. The others are optional.
        build: makes a receiver from its name, its options and its surroundings.
        mirrors: see :class:`~tocsin_service.delivery.policy.Policy`.
    """

    options: Mapping[str, Option]
    forms: tuple[frozenset[str], ...]
    build: Callable[[str, Mapping[str, Secret], Surroundings], Receiver]
    mirrors: bool = False

    @property
    def optional(self) -> frozenset[str]:
        """The options that may be left out."""
        return frozenset(self.options).difference(*self.forms)


@dataclass(frozen=True, slots=True)
class Described:
    """A receiver as an operator wants it.

    Attributes:
        name: in the outbox, in routes and in the metrics.
        kind: key of :data:`KINDS`.
        lang: language of its messages; None: that of the service.
        line: where it stands in the file of receivers; None if it is made from settings.
    """

    name: str
    kind: str
    options: Mapping[str, Given] = field(repr=False)
    policy: Policy = field(default_factory=Policy)
    lang: Language | None = None
    line: int | None = None


def make(described: Described, around: Surroundings) -> Receiver:
    """The receiver.

    Raises:
        ValueError: a file with a secret can't be read, or what it holds can't be what it should be.
    """
    kind = KINDS[described.kind]
    options = {name: _secret(given, name, kind.options[name]) for name, given in described.options.items()}
    shown = around.shown if described.lang is None else replace(around.shown, lang=described.lang)
    return kind.build(described.name, options, replace(around, shown=shown))


def _secret(given: Given, name: str, option: Option) -> Secret:
    if isinstance(given, Secret):
        return given
    try:
        return Secret.of_file(given, option.check) if isinstance(given, Path) else Secret(given, check=option.check)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _slack(name: str, options: Mapping[str, Secret], around: Surroundings) -> Receiver:
    if "webhook" in options:
        return Slack(options["webhook"], around.shown, name=name)
    token, channel, api = options["token"], options["channel"].read(), options.get("api")
    at = API if api is None else api.read()
    return SlackApp(token, channel, around.shown, name=name, api=at, clock=around.clock)


def _webhook(name: str, options: Mapping[str, Secret], around: Surroundings) -> Receiver:
    return Webhook(options["address"], options.get("secret"), around.shown, clock=around.clock, name=name)


def _alertmanager(name: str, options: Mapping[str, Secret], around: Surroundings) -> Receiver:
    return Alertmanager(options["address"], around.shown, clock=around.clock, name=name)


def _apprise(name: str, options: Mapping[str, Secret], around: Surroundings) -> Receiver:
    return Apprise(options["urls"], around.shown, name=name)


KINDS: Mapping[str, Kind] = {
    "slack": Kind(
        options={
            "webhook": Option(check=check_private_address),
            "token": Option(check=check_word),
            "channel": Option(secret=False, public=True, check=check_word),
            "api": Option(secret=False, public=True, check=check_private_address),
        },
        forms=(frozenset({"webhook"}), frozenset({"token", "channel"})),
        build=_slack,
    ),
    "webhook": Kind(
        options={"address": Option(secret=False, check=check_private_address), "secret": Option()},
        forms=(frozenset({"address"}),),
        build=_webhook,
    ),
    "alertmanager": Kind(
        options={"address": Option(secret=False, check=check_base)},
        forms=(frozenset({"address"}),),
        build=_alertmanager,
        mirrors=True,
    ),
    "apprise": Kind(options={"urls": Option(check=check_urls)}, forms=(frozenset({"urls"}),), build=_apprise),
}
