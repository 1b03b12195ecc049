"""The service's settings: one frozen value, read from four sources of rising priority.

Defaults, then a TOML file, then the environment (``TOCSIN_PORT=8765``), then command-line flags.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from tocsin_detectors.texts import LANGUAGES, Language
from tocsin_service.presentation import RUNBOOK_BASE
from tocsin_service.rollouts.limits import setting_problem

__all__ = ["Settings", "SettingsError", "is_loopback", "load"]

PREFIX = "TOCSIN_"
# A trainer's shell may hold the client's own variables beside the service's: they are not typing errors of ours.
CLIENT_VARIABLES = frozenset({"url", "run", "disabled", "debug", "exit_timeout", "spool", "spool_bytes", "embedded"})


class SettingsError(ValueError):
    """A setting is unknown, malformed or unsafe. The message names the key, its source and what to write instead."""


def _half_of_the_cores() -> int:
    """The other half takes vectors and judges them meanwhile."""
    return max(1, (os.cpu_count() or 1) // 2)


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator can choose.

    Attributes:
        host: address to listen on. Beyond loopback only with a token.
        port: TCP port; 0 takes any free one.
        db: path of the SQLite file. A lock file of the same name plus ".lock" lies beside it.
        sync: "normal" survives a killed process, "full" survives a power cut too and costs about 17 times as much.
        store: address of a Redis to use instead of the file, shared by several processes: redis://, rediss:// (TLS) or
            unix://. Secret, as it may hold a password.
        redis_user: user of Redis's access control.
        redis_password: its password; replaces one in the address. Secret.
        redis_ca_file: certificates to trust for rediss://; None: those of the system.
        tokens: bearer tokens that clients may use; empty means no token is asked for. Secret.
        slack_webhook: incoming-webhook address of Slack; None turns Slack off. Secret.
        webhook: address of a program that takes incidents as JSON; None turns it off. Secret.
        webhook_secret: key with which the JSON is signed; None: unsigned. Secret.
        rules: path of a rule file, read at the start; None: the shipped rules as they are.
        lang: language of messages: "en" or "zh".
        runbook_base: where the runbook pages are: a path, or an http(s) address, which makes them links.
        max_body_bytes: largest request body as sent, in bytes.
        max_decoded_bytes: largest request body after decompression, in bytes.
        max_metrics: most metrics in one vector.
        max_batch: most vectors in one request.
        max_runs: most runs kept; a vector of one more is refused.
        keep_entries: most entries kept in the log of a run; older ones go once they are folded. 0: all are kept.
        keep_days: days for which entries are kept, and runs of which nothing is heard any more. 0: for ever.
        max_engines: most runs whose engine a worker keeps in memory; another is restored when it has news.
        max_exported_runs: most runs shown in /metrics, the latest first; the others are counted there.
        stop_seconds: longest time each stage of a graceful stop may take.
        max_tensor_bytes: largest body of tensors, in bytes.
        tensor_queue: most requests with tensors under way: being received, waiting, or being computed.
        tensor_queue_bytes: most bytes of tensors that they may hold together.
        tensor_dir: directory whose safetensors files may be named instead of sent; None: no file may be.
        tensor_device: where tensors are computed: "auto" (CUDA if there is one), "cpu", "cuda" or "cuda:N".
        tensor_threads: threads of the CPU for it.
        rollout_dir: folder of the rollout log; None: no rollouts are kept.
        max_rollout_bytes: largest body of rollouts, as sent and after decompression.
        rollout_bytes: most bytes of files of rollouts, of all runs together; the oldest go.
        rollout_days: days for which rollouts are kept. 0: for ever.
        rollout_every: only of every so many-th step all rollouts are kept; of the others, the extreme ones.
        rollout_rows: most rollouts kept of a step, the extreme ones among them. 0: all.
        rollout_redact: file of regular expressions; what they match in the texts isn't kept.
        rollout_hook: "module:function" that takes a text and gives back what may be kept of it.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    db: Path = Path("tocsin.db")
    sync: Literal["normal", "full"] = "normal"
    store: str | None = field(default=None, repr=False)
    redis_user: str | None = None
    redis_password: str | None = field(default=None, repr=False)
    redis_ca_file: Path | None = None
    tokens: tuple[str, ...] = field(default=(), repr=False)
    slack_webhook: str | None = field(default=None, repr=False)
    webhook: str | None = field(default=None, repr=False)
    webhook_secret: str | None = field(default=None, repr=False)
    rules: Path | None = None
    lang: Language = "en"
    runbook_base: str = RUNBOOK_BASE
    max_body_bytes: int = 8 * 2**20
    max_decoded_bytes: int = 64 * 2**20
    max_metrics: int = 2_000
    max_batch: int = 10_000
    max_runs: int = 10_000
    keep_entries: int = 200_000
    keep_days: float = 90.0
    max_engines: int = 1_000
    max_exported_runs: int = 1_000
    stop_seconds: float = 10.0
    max_tensor_bytes: int = 2**30
    tensor_queue: int = 8
    tensor_queue_bytes: int = 2 * 2**30
    tensor_dir: Path | None = None
    tensor_device: str = "auto"
    tensor_threads: int = field(default_factory=_half_of_the_cores)
    rollout_dir: Path | None = None
    max_rollout_bytes: int = 256 * 2**20
    rollout_bytes: int = 20 * 2**30
    rollout_days: float = 14.0
    rollout_every: int = 1
    rollout_rows: int = 0
    rollout_redact: Path | None = None
    rollout_hook: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise SettingsError(f"port: {self.port} is no TCP port; choose 0 (any free port) to 65535")
        if self.sync not in {"normal", "full"}:
            raise SettingsError('sync: choose "normal" or "full"')
        if self.lang not in LANGUAGES:
            raise SettingsError(f"lang: choose {' or '.join(LANGUAGES)}")
        base = self.runbook_base
        if len(base) > 200 or not base.isprintable() or any(char in base for char in ' <>|"`\\'):
            raise SettingsError(
                "runbook_base: write a path or address of at most 200 characters, without spaces or quotes"
            )
        for name in _NUMBERS:
            value, least = getattr(self, name), "0 or more" if name in _MAY_BE_ZERO else "more than 0"
            if not 0 <= value < math.inf or (value == 0 and name not in _MAY_BE_ZERO):
                raise SettingsError(f"{name}: must be {least}, and finite")
        if any(
            not token.isascii() or not token.isprintable() or " " in token or len(token) < 8 for token in self.tokens
        ):
            raise SettingsError("token: needs at least 8 printable ASCII characters and no spaces")
        for name in ("slack_webhook", "webhook"):
            if (address := getattr(self, name)) is not None:
                _check_webhook(name, address)
        _check_store(self)
        _check_tensors(self)
        if problem := setting_problem(self.rollout_dir, self.rollout_hook):
            raise SettingsError(problem)
        if not self.tokens and not is_loopback(self.host):
            raise SettingsError(
                f"host: {self.host} can be reached from other machines and no token is set; "
                f"set token_file (or {PREFIX}TOKEN), or listen on 127.0.0.1"
            )


_INTEGERS = frozenset(
    {
        "port",
        "max_body_bytes",
        "max_decoded_bytes",
        "max_metrics",
        "max_batch",
        "max_runs",
        "max_engines",
        "max_exported_runs",
    }
) | {"keep_entries", "max_tensor_bytes", "tensor_queue", "tensor_queue_bytes", "tensor_threads"}
_INTEGERS |= {"max_rollout_bytes", "rollout_bytes", "rollout_every", "rollout_rows"}
_NUMBERS = _INTEGERS | {"stop_seconds", "keep_days", "rollout_days"}
_MAY_BE_ZERO = frozenset({"port", "keep_entries", "keep_days", "rollout_days", "rollout_rows"})
# Secrets that may also stand in a file, which the key with "_file" behind it names.
_SECRETS = ("token", "slack_webhook", "webhook", "webhook_secret", "redis_password")
_SECRET_FILES = frozenset(f"{name}_file" for name in _SECRETS)
_PATHS = frozenset({"db", "rules", "tensor_dir", "redis_ca_file", "rollout_dir", "rollout_redact"})
# Keys that an operator writes.
_KEYS = frozenset({one.name for one in fields(Settings)} - {"tokens"} | {"token"} | _SECRET_FILES)


def load(
    flags: Mapping[str, object] | None = None,
    *,
    config: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings after all sources have been read.

    Args:
        flags: values of command-line flags by key; None means "not given".
        config: the TOML file; TOCSIN_CONFIG names it if None.
        environ: environment variables; the process's own if None.

    Raises:
        SettingsError: a key is unknown, a value is malformed or unsafe, or a file can't be read.
    """
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    variables = os.environ if environ is None else environ
    file = config or variables.get(f"{PREFIX}CONFIG")
    merged: dict[str, Any] = {}
    for key, value, source in (
        *_from_file(Path(file) if file else None),
        *_from_environment(variables),
        *((key, value, f"flag --{key.replace('_', '-')}") for key, value in given.items()),
    ):
        if key not in _KEYS:
            raise SettingsError(f"{source}: unknown setting {key!r}; known are {', '.join(sorted(_KEYS))}")
        _supersede(merged, key)
        merged[key] = _parse(key, value, source)
    return Settings(**_resolve_secrets(merged))


def _from_file(path: Path | None) -> Iterator[tuple[str, object, str]]:
    if path is None:
        return
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"config file {path}: can't be read: {error.strerror}") from None
    except ValueError as error:  # also text that is not UTF-8
        raise SettingsError(f"config file {path}: is not valid TOML: {error}") from None
    for key, value in data.items():
        yield key, value, f"config file {path}"


def _from_environment(variables: Mapping[str, str]) -> Iterator[tuple[str, object, str]]:
    for name, value in sorted(variables.items()):
        key = name.removeprefix(PREFIX).lower()
        if name.startswith(PREFIX) and key != "config" and key not in CLIENT_VARIABLES:
            yield key, value, f"environment variable {name}"


def _supersede(merged: dict[str, Any], key: str) -> None:
    """A secret given in one form by a stronger source replaces its other form of a weaker one."""
    for name in _SECRETS:
        if key in {name, f"{name}_file"}:
            merged.pop(name, None)
            merged.pop(f"{name}_file", None)


def _parse(key: str, value: object, source: str) -> object:
    if key in _NUMBERS:
        return _parse_number(key, value, source)
    if not isinstance(value, (str, Path)) or not str(value).strip():
        raise SettingsError(f"{source}: {key} must be a text that is not empty")
    text = str(value).strip()
    return Path(text) if key in _PATHS | _SECRET_FILES else text


def _parse_number(key: str, value: object, source: str) -> int | float:
    kind = int if key in _INTEGERS else float
    wanted = "a whole number" if kind is int else "a number"
    problem = SettingsError(f"{source}: {key} must be {wanted}, not {value!r}")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise problem
    if isinstance(value, float) and kind is int:
        raise problem
    try:
        return kind(value)
    except ValueError:
        raise problem from None


def _resolve_secrets(merged: dict[str, Any]) -> dict[str, Any]:
    for name in _SECRETS:
        path = merged.pop(f"{name}_file", None)
        if path is not None:
            secret = _read_secret(path, f"{name}_file")
            merged[name] = tuple(secret.split()) if name == "token" else secret
    token = merged.pop("token", None)
    if token is not None:
        merged["tokens"] = (token,) if isinstance(token, str) else token
    return merged


def _read_secret(path: Path, key: str) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{key}: {path} can't be read: {type(error).__name__}") from None
    if not text:
        raise SettingsError(f"{key}: {path} is empty")
    return text


def _check_webhook(name: str, address: str) -> None:
    # The address is the secret: no message may repeat it.
    try:
        parts = urlsplit(address)
        host = parts.hostname
        _ = parts.port  # raises on a port that is none
    except ValueError:
        host = None
    if host is None or any(not char.isprintable() or char == " " for char in address):
        raise SettingsError(f"{name}: is no address; write one such as https://hooks.slack.com/services/...")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise SettingsError(f"{name}: must begin with https:// (http:// only for a receiver on this machine)")


def _check_store(settings: Settings) -> None:
    address = settings.store
    if address is None:
        if settings.redis_user or settings.redis_password or settings.redis_ca_file:
            raise SettingsError("redis_user, redis_password, redis_ca_file: are for a Redis; set store to its address")
        return
    # It may hold a password: no message may repeat it.
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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``: "localhost" or a loopback address, with or without brackets."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
