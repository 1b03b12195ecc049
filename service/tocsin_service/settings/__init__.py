"""The service's settings: one frozen value, read from four sources of rising priority.

Defaults, then a TOML file, then the environment (``TOCSIN_PORT=8765``), then command-line flags.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from tocsin_detectors.texts import Language
from tocsin_service.presentation import RUNBOOK_BASE
from tocsin_service.settings.checks import SettingsError, check, check_number
from tocsin_service.settings.sources import PREFIX, SECRET_FILES, Kind, gather, resolve_secrets

__all__ = ["Settings", "SettingsError", "load"]


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
        tokens: bearer tokens that clients may use, each as a line of a token file
            (:func:`~tocsin_service.access.tokens.parse_tokens`); empty means no token is asked for. Secret.
        slack_webhook: incoming-webhook address of Slack; None turns Slack off. Secret.
        webhook: address of a program that takes incidents as JSON; None turns it off. Secret.
        webhook_secret: key with which the JSON is signed; None: unsigned. Secret.
        slack_token: token of a Slack app, instead of a webhook: then updates answer the first message. Secret.
        slack_channel: where it writes: a channel's id.
        alertmanager: address of an Alertmanager to push to; None turns it off. Secret, as it may hold a password.
        receivers: path of a file with more receivers, and routes to them; None: all receivers are told of everything.
        public_url: where people reach the service; with ``link_secret`` messages have links to pages of it.
        link_secret: key of the signatures of those links. Secret.
        pictures: whether messages show the curves of an incident where a receiver can show a picture.
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
        tls_cert_file, tls_key_file: certificate chain and key (PEM) for https; None: plain http.
        max_connections: most connections at a time; another is refused with 503.
        max_run_rate: most requests a second that write to one run, in the long run; 0: no bound.
        max_token_rate: most requests a second with one token, in the long run; 0: no bound.
        secret_files: where secrets were read from, by key without "_file", for parts that read them again later.
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
    slack_token: str | None = field(default=None, repr=False)
    slack_channel: str | None = None
    alertmanager: str | None = field(default=None, repr=False)
    receivers: Path | None = None
    public_url: str | None = None
    link_secret: str | None = field(default=None, repr=False)
    pictures: bool = False
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    max_connections: int = 1_000
    max_run_rate: float = 500.0
    max_token_rate: float = 5_000.0
    secret_files: Mapping[str, Path] = field(default_factory=dict, repr=False, hash=False)
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
        for name, kind in _KINDS.items():
            if kind is int or kind is float:
                check_number(name, getattr(self, name))
        check(self)


def _kind(annotation: str) -> Kind:
    """What an operator writes for a field: a number, a switch, a path or a text."""
    return {"int": int, "float": float, "bool": bool, "Path": Path}.get(annotation.removesuffix(" | None"), str)


# Keys that an operator writes.
_KINDS: dict[str, Kind] = {
    one.name: _kind(str(one.type)) for one in fields(Settings) if one.name not in {"tokens", "secret_files"}
} | {"token": str, **dict.fromkeys(SECRET_FILES, Path)}
_KEYS = frozenset(_KINDS)


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
    return Settings(**resolve_secrets(gather(_KINDS, given, Path(file) if file else None, variables)))
