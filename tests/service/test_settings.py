"""Where settings come from, and how wrong ones are told."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

from tocsin_service.settings import Settings, SettingsError, load
from tocsin_service.settings.sources import SECRETS

SECRET = "https://hooks.slack.com/services/T0/B0/very-secret"  # noqa: S105 - a test's secret


def from_(tmp_path: Path, toml: str | None = None, environ: dict[str, str] | None = None, **flags: object) -> Settings:
    config = None
    if toml is not None:
        config = tmp_path / "tocsin.toml"
        config.write_text(toml)
    return load(flags, config=config, environ=environ or {})


def test_defaults(tmp_path: Path) -> None:
    settings = from_(tmp_path)
    assert settings == Settings()
    assert (settings.host, settings.port, settings.db) == ("127.0.0.1", 8765, Path("tocsin.db"))


def test_each_source_beats_the_one_before(tmp_path: Path) -> None:
    toml = 'port = 1\nmax_runs = 1\nmax_batch = 1\ndb = "a.db"'
    environ = {"TOCSIN_MAX_RUNS": "2", "TOCSIN_MAX_BATCH": "2", "TOCSIN_STOP_SECONDS": "0.5"}
    settings = from_(tmp_path, toml, environ, max_batch=3, host=None)
    assert (settings.port, settings.max_runs, settings.max_batch) == (1, 2, 3)
    assert (settings.db, settings.stop_seconds) == (Path("a.db"), 0.5)


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("port = 0")
    assert load(environ={"TOCSIN_CONFIG": str(tmp_path / "x.toml")}).port == 0


def test_the_clients_variables_are_none_of_ours(tmp_path: Path) -> None:
    names = ("URL", "RUN", "DISABLED", "DEBUG", "EXIT_TIMEOUT")
    assert from_(tmp_path, environ={f"TOCSIN_{name}": "x" for name in names} | {"PATH": "/"}) == Settings()


@pytest.mark.parametrize(
    ("toml", "environ", "flags", "said"),
    [
        ("prot = 1", {}, {}, ["tocsin.toml", "'prot'", "port"]),
        ("", {"TOCSIN_PROT": "1"}, {}, ["TOCSIN_PROT", "'prot'"]),
        ("", {}, {"max_thing": 1}, ["--max-thing", "'max_thing'"]),
        ('port = "http"', {}, {}, ["tocsin.toml", "port", "whole number", "'http'"]),
        ("port = true", {}, {}, ["port", "True"]),
        ("port = 80.5", {}, {}, ["port", "80.5"]),
        ("port = 70000", {}, {}, ["port", "70000", "65535"]),
        ("", {"TOCSIN_MAX_RUNS": "many"}, {}, ["TOCSIN_MAX_RUNS", "max_runs", "'many'"]),
        ("max_batch = 0", {}, {}, ["max_batch", "more than 0"]),
        ("stop_seconds = nan", {}, {}, ["stop_seconds"]),
        ("stop_seconds = inf", {}, {}, ["stop_seconds", "finite"]),
        ("keep_days = -1", {}, {}, ["keep_days", "0 or more"]),
        ("keep_entries = 0.5", {}, {}, ["keep_entries", "whole number"]),
        ('store = "sqlite:///tocsin.db"', {}, {}, ["store", "redis://HOST"]),
        ('store = "redis://"', {}, {}, ["store", "redis://HOST"]),
        ('store = "redis://host:port"', {}, {}, ["store", "redis://HOST"]),
        ('redis_user = "tocsin"', {}, {}, ["redis_user", "set store"]),
        ('store = "redis://host"\nredis_ca_file = "ca.pem"', {}, {}, ["redis_ca_file", "rediss://"]),
        ("host = 1", {}, {}, ["host", "text"]),
        ('db = " "', {}, {}, ["db", "empty"]),
        ('sync = "never"', {}, {}, ["sync", "full"]),
        ("port =", {}, {}, ["tocsin.toml", "TOML"]),
        ('host = "0.0.0.0"', {}, {}, ["host", "0.0.0.0", "token"]),
        ('host = "::"', {}, {}, ["host", "token"]),
        ('host = "gpu-7.example"', {}, {}, ["host", "token"]),
        ('token = "short"', {}, {}, ["token", "8"]),
        ('token = "trainer ingest long-enough"', {}, {}, ["token", "file"]),
        ('token = "# long-enough"', {}, {}, ["token", "file"]),
        ('tokens = ["long-enough"]', {}, {}, ["'tokens'"]),
        ('secret_files = "x"', {}, {}, ["'secret_files'"]),
        ('tls_cert_file = "a.pem"', {}, {}, ["tls_key_file", "both"]),
        ('tls_key_file = "a.pem"', {}, {}, ["tls_cert_file", "both"]),
        ('slack_channel = "C012345"', {}, {}, ["slack_token", "both"]),
        ('slack_token = "xoxb-1"', {}, {}, ["slack_channel", "both"]),
        ('slack_token = "xoxb 1"\nslack_channel = "C012345"', {}, {}, ["slack_token", "spaces"]),
        (
            'slack_token = "xoxb-1"\nslack_channel = "C012345"\nslack_webhook = "https://hooks.slack.com/services/x"',
            {},
            {},
            ["slack_token", "slack_webhook", "one of them"],
        ),
        ('alertmanager = "alertmanager:9093"', {}, {}, ["alertmanager", "http://"]),
        ('alertmanager = "http://a:9093/?x=1"', {}, {}, ["alertmanager", "http://"]),
        ('public_url = "https://tocsin.example"', {}, {}, ["link_secret", "both"]),
        ('link_secret = "0123456789abcdef"', {}, {}, ["public_url", "both"]),
        ('public_url = "https://tocsin.example"\nlink_secret = "0123456789abcde"', {}, {}, ["link_secret", "16"]),
        ("pictures = true", {}, {}, ["pictures", "public_url"]),
        ("pictures = 1", {}, {}, ["pictures", "true or false"]),
        ("max_connections = 0", {}, {}, ["max_connections", "more than 0"]),
        ("max_token_rate = -1", {}, {}, ["max_token_rate", "0 or more"]),
        ('token_file = "/nonexistent"', {}, {}, ["token_file", "/nonexistent"]),
    ],
)
def test_wrong_settings(
    tmp_path: Path, toml: str, environ: dict[str, str], flags: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        from_(tmp_path, toml, environ, **flags)
    assert all(part in str(caught.value) for part in said), str(caught.value)


def test_a_config_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can't be read"):
        load(config=tmp_path / "none.toml", environ={})


def test_secrets_from_files(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("first-token\nsecond-token\n")
    (tmp_path / "hook").write_text(f"{SECRET}\n")
    flags = {"token_file": str(tmp_path / "tokens"), "slack_webhook_file": tmp_path / "hook", "host": "0.0.0.0"}
    settings = from_(tmp_path, **flags)
    assert settings.tokens == ("first-token", "second-token")
    assert settings.slack_webhook == SECRET


def test_a_secret_of_a_stronger_source_wins_in_either_form(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(SECRET)
    weaker = {"TOCSIN_SLACK_WEBHOOK": "https://hooks.slack.com/services/other", "TOCSIN_TOKEN": "weaker-token"}
    (tmp_path / "tokens").write_text("stronger-token")
    settings = from_(tmp_path, None, weaker, slack_webhook_file=tmp_path / "hook", token_file=tmp_path / "tokens")
    assert (settings.slack_webhook, settings.tokens) == (SECRET, ("stronger-token",))


def test_empty_secret_files(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    for key in ("token_file", "slack_webhook_file"):
        with pytest.raises(SettingsError, match=f"{key}.*empty"):
            from_(tmp_path, **{key: tmp_path / "empty"})


@pytest.mark.parametrize(
    "address",
    [
        "hooks.slack.com/services/T0/B0/very-secret",
        "http://hooks.slack.com/services/T0/B0/very-secret",
        "https://hooks.slack.com:port/services/T0/B0/very-secret",
        "https://[hooks/services/T0/B0/very-secret",
        "https://hooks.slack.com/services/T0/B0/very secret",
        "ftp://hooks.slack.com/services/T0/B0/very-secret",
    ],
)
def test_a_webhook_that_is_none_is_not_repeated(tmp_path: Path, address: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_(tmp_path, slack_webhook=address)
    assert "slack_webhook" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "http://tocsin.example",
        "ftp://tocsin.example",
        "tocsin.example",
        "https://",
        "https://tocsin.example/a",
        "https://tocsin.example/../b",
        "https://tocsin.example?x=1",
        "https://tocsin.example#x",
        "https://me:pw@tocsin.example",
        "https://tocsin.example:port",
        'https://tocsin.example"><script>',
        "https://tocsin.example\\evil",
    ],
)
def test_addresses_that_are_not_public(tmp_path: Path, address: str) -> None:
    with pytest.raises(SettingsError, match="public_url"):
        from_(tmp_path, public_url=address, link_secret="0123456789abcdef")  # noqa: S106 - a test's


@pytest.mark.parametrize("address", ["https://tocsin.example", "https://tocsin.example:8443/", "http://127.0.0.1:8765"])
def test_links_and_pictures(tmp_path: Path, address: str) -> None:
    environ = {"TOCSIN_LINK_SECRET": "0123456789abcdef", "TOCSIN_PICTURES": "true"}
    settings = from_(tmp_path, environ=environ, public_url=address)
    assert (settings.public_url, settings.pictures) == (address, True)


def test_an_alertmanager_may_be_anywhere(tmp_path: Path) -> None:
    for address in ("http://alertmanager.monitoring:9093/prefix", "https://me:pw@alerts.example"):
        assert from_(tmp_path, alertmanager=address).alertmanager == address


def test_files_of_secrets_are_remembered(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("token", "link_secret", "webhook_secret")}
    for file in files.values():
        file.write_text("0123456789abcdef\n")
    flags = {f"{name}_file": file for name, file in files.items()}
    settings = from_(tmp_path, public_url="https://tocsin.example", **flags)
    assert settings.secret_files == files
    assert settings.link_secret == "0123456789abcdef"  # noqa: S105 - a test's
    assert "secret" not in repr(settings)


def test_tokens_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("# ours\ntrainer ingest first-token\n\nsecond-token\n")
    assert from_(tmp_path, token_file=tmp_path / "tokens").tokens == ("trainer ingest first-token", "second-token")


def test_secrets_are_not_shown() -> None:
    store = "redis://:very-secret@host"
    secrets = {"slack_webhook": SECRET, "redis_password": SECRET, "webhook_secret": SECRET, "alertmanager": SECRET}
    links = {"public_url": "https://tocsin.example", "link_secret": SECRET}
    shown = repr(Settings(tokens=("a-secret-token",), store=store, webhook=SECRET, **secrets, **links))
    app = repr(Settings(slack_token="xoxb-secret", slack_channel="C012345"))  # noqa: S106 - a test's
    assert "secret" not in shown + app


def test_every_secret_is_kept_out_of_representations() -> None:
    """What may stand in a file is a secret, and isn't shown; a new one can't be forgotten here."""
    hidden = {one.name for one in fields(Settings) if not one.repr}
    assert hidden - {"secret_files"} == {"store"} | {"tokens" if name == "token" else name for name in SECRETS}


def test_an_address_that_is_none_is_not_repeated() -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(store="redis://:very-secret@host:port")
    assert "secret" not in str(caught.value)


def test_nothing_is_kept_for_ever_unless_wanted() -> None:
    assert Settings().keep_entries > 0 < Settings().keep_days
    assert Settings(keep_entries=0, keep_days=0) == Settings(keep_entries=0, keep_days=0.0)


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(Settings(), "port", 1)  # noqa: B010 - a plain assignment is what the type checker forbids
