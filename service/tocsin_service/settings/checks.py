"""What is wrong with settings: every rule about their values, alone and together. No message repeats a secret."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from tocsin_detectors.texts import LANGUAGES
from tocsin_service.access.tokens import TokensError, parse_tokens
from tocsin_service.addresses import check_base, check_private_address, check_word, is_loopback
from tocsin_service.rollouts.limits import setting_problem

if TYPE_CHECKING:
    from tocsin_service.settings import Settings

__all__ = ["SettingsError", "check"]

T = TypeVar("T")
MAY_BE_ZERO = frozenset(
    {"port", "keep_entries", "keep_days", "max_run_rate", "max_token_rate", "rollout_days", "rollout_rows"}
)
SHORTEST_SECRET = 16  # characters of a key that we sign with


class SettingsError(ValueError):
    """A setting is unknown, malformed or unsafe. The message names the key, its source and what to write instead."""


def check(settings: Settings) -> None:
    """Looks at every value.

    Raises:
        SettingsError: the first that is wrong.
    """
    _check_choices(settings)
    _check_tokens(settings)
    _check_receivers(settings)
    _check_links(settings)
    _check_store(settings)
    _check_tensors(settings)
    if problem := setting_problem(settings.rollout_dir, settings.rollout_hook):
        raise SettingsError(problem)
    if (settings.tls_cert_file is None) != (settings.tls_key_file is None):
        raise SettingsError("tls_cert_file, tls_key_file: https needs both, http neither; set the other one too")
    if not settings.tokens and not is_loopback(settings.host):
        raise SettingsError(
            f"host: {settings.host} can be reached from other machines and no token is set; "
            "set token_file (or TOCSIN_TOKEN), or listen on 127.0.0.1"
        )


def check_number(name: str, value: float) -> None:
    """Whether a number is in its range.

    Raises:
        SettingsError: it isn't.
    """
    least = "0 or more" if name in MAY_BE_ZERO else "more than 0"
    if not 0 <= value < math.inf or (value == 0 and name not in MAY_BE_ZERO):
        raise SettingsError(f"{name}: must be {least}, and finite")


def _check_choices(settings: Settings) -> None:
    if not 0 <= settings.port <= 65_535:
        raise SettingsError(f"port: {settings.port} is no TCP port; choose 0 (any free port) to 65535")
    if settings.sync not in {"normal", "full"}:
        raise SettingsError('sync: choose "normal" or "full"')
    if settings.lang not in LANGUAGES:
        raise SettingsError(f"lang: choose {' or '.join(LANGUAGES)}")
    base = settings.runbook_base
    if len(base) > 200 or not base.isprintable() or any(char in base for char in ' <>|"`\\'):
        raise SettingsError("runbook_base: write a path or address of at most 200 characters, without spaces or quotes")


def _check_tokens(settings: Settings) -> None:
    try:
        parse_tokens("\n".join(settings.tokens))
    except TokensError as error:
        raise SettingsError(f"token: {error}") from None


def _check_receivers(settings: Settings) -> None:
    for name, fits in _RECEIVERS.items():
        if (value := getattr(settings, name)) is not None:
            _fits(name, value, fits)
    if (settings.slack_token is None) != (settings.slack_channel is None):
        raise SettingsError("slack_token, slack_channel: a Slack app needs both; set the other one too")
    if settings.slack_token is not None and settings.slack_webhook is not None:
        raise SettingsError("slack_token, slack_webhook: are two ways to the same place; set one of them")


_RECEIVERS: Mapping[str, Callable[[str], object]] = {
    "slack_webhook": check_private_address,
    "webhook": check_private_address,
    "alertmanager": check_base,
    "slack_token": check_word,
    "slack_channel": check_word,
}


def _fits(name: str, value: str, fits: Callable[[str], T]) -> T:
    try:
        return fits(value)
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from None


def _check_links(settings: Settings) -> None:
    address, secret = settings.public_url, settings.link_secret
    if (address is None) != (secret is None):
        raise SettingsError("public_url, link_secret: links in messages need both; set the other one too")
    if secret is not None and len(secret) < SHORTEST_SECRET:
        raise SettingsError(f"link_secret: needs at least {SHORTEST_SECRET} characters; make one: openssl rand -hex 32")
    if settings.pictures and address is None:
        raise SettingsError("pictures: receivers fetch them through links; set public_url and link_secret")
    if address is None:
        return
    parts = _fits("public_url", address, check_private_address)  # links let people act
    if parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc:
        raise SettingsError("public_url: write scheme, host and port alone, such as https://tocsin.example")


def _check_store(settings: Settings) -> None:
    address = settings.store
    if address is None:
        if settings.redis_user or settings.redis_password or settings.redis_ca_file:
            raise SettingsError("redis_user, redis_password, redis_ca_file: are for a Redis; set store to its address")
        return
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises on a port that is none
    except ValueError:
        parts = urlsplit("")
    if not (parts.hostname if parts.scheme in {"redis", "rediss"} else parts.scheme == "unix" and parts.path):
        raise SettingsError("store: is no address of a Redis; write redis://HOST:PORT/DB, rediss://... or unix:///PATH")
    if settings.redis_ca_file is not None and parts.scheme != "rediss":
        raise SettingsError(
            "redis_ca_file: certificates are for an encrypted connection; let store begin with rediss://"
        )


def _check_tensors(settings: Settings) -> None:
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", settings.tensor_device):
        raise SettingsError('tensor_device: choose "auto", "cpu", "cuda" or "cuda:N"')
    if settings.tensor_queue_bytes < settings.max_tensor_bytes:
        raise SettingsError("tensor_queue_bytes: must be at least max_tensor_bytes, or the largest body never fits")
