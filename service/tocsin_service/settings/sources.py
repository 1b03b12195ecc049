"""Where settings are written: a TOML file, the environment, flags, and files that hold secrets."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tocsin_service.access.tokens import TokensError, read_tokens
from tocsin_service.settings.checks import SettingsError

__all__ = ["PREFIX", "SECRETS", "SECRET_FILES", "Kind", "gather", "resolve_secrets"]

PREFIX = "TOCSIN_"
# A trainer's shell may hold the client's own variables beside the service's: they are not typing errors of ours.
CLIENT_VARIABLES = frozenset({"url", "run", "disabled", "debug", "exit_timeout", "spool", "spool_bytes", "embedded"})
# Secrets that may also stand in a file, which the key with "_file" behind it names.
SECRETS = (
    "token",
    "slack_webhook",
    "slack_token",
    "webhook",
    "webhook_secret",
    "alertmanager",
    "link_secret",
    "redis_password",
)
SECRET_FILES = frozenset(f"{name}_file" for name in SECRETS)

Kind: TypeAlias = type[int] | type[float] | type[bool] | type[Path] | type[str]


def gather(
    kinds: Mapping[str, Kind], flags: Mapping[str, object], config: Path | None, variables: Mapping[str, str]
) -> dict[str, Any]:
    """What all sources say together; the later ones win.

    Args:
        kinds: of every key that an operator may write.
        flags: values of command-line flags by key.
        config: the TOML file.
        variables: of the environment.

    Raises:
        SettingsError: a key is unknown, a value isn't of its kind, or the file can't be read.
    """
    merged: dict[str, Any] = {}
    for key, value, source in (
        *_from_file(config),
        *_from_environment(variables),
        *((key, value, f"flag --{key.replace('_', '-')}") for key, value in flags.items()),
    ):
        if key not in kinds:
            raise SettingsError(f"{source}: unknown setting {key!r}; known are {', '.join(sorted(kinds))}")
        _supersede(merged, key)
        merged[key] = _parse(key, kinds[key], value, source)
    return merged


def resolve_secrets(merged: dict[str, Any]) -> dict[str, Any]:
    """``merged`` with the secrets that its files hold, as ``Settings`` takes them.

    Raises:
        SettingsError: a file can't be read, or holds none.
    """
    files: dict[str, Path] = {}
    for name in SECRETS:
        path = merged.pop(f"{name}_file", None)
        if path is not None:
            files[name] = path
            merged[name] = _read_tokens(path) if name == "token" else _read_secret(path, f"{name}_file")
    token = merged.pop("token", None)
    if isinstance(token, str):
        if len(token.split()) > 1 or token.startswith("#"):
            raise SettingsError("token: is one token without spaces; several, with names and scopes, go into a file")
        token = (token,)
    return {**merged, "tokens": token or (), "secret_files": files}


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
    for name in SECRETS:
        if key in {name, f"{name}_file"}:
            merged.pop(name, None)
            merged.pop(f"{name}_file", None)


def _parse(key: str, kind: Kind, value: object, source: str) -> object:
    if kind is bool:
        return _parse_switch(key, value, source)
    if kind is int or kind is float:
        return _parse_number(key, kind, value, source)
    if not isinstance(value, (str, Path)) or not str(value).strip():
        raise SettingsError(f"{source}: {key} must be a text that is not empty")
    return kind(str(value).strip())


def _parse_switch(key: str, value: object, source: str) -> bool:
    switch = {"true": True, "false": False}.get(str(value).strip().lower())
    if switch is None:
        raise SettingsError(f"{source}: {key} must be true or false, not {value!r}")
    return switch


def _parse_number(key: str, kind: type[int | float], value: object, source: str) -> int | float:
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


def _read_tokens(path: Path) -> tuple[str, ...]:
    try:
        return read_tokens(path)
    except TokensError as error:
        raise SettingsError(f"token_file: {error}") from None


def _read_secret(path: Path, key: str) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{key}: {path} can't be read: {type(error).__name__}") from None
    if not text:
        raise SettingsError(f"{key}: {path} is empty")
    return text
