"""docker-compose.yml and deploy/make-secrets, as far as they can be checked without a container engine."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.deploy.native import DEPLOY, ROOT, read_yaml

from tocsin_service.access.tokens import Scope, parse_tokens
from tocsin_service.cli import _parser
from tocsin_service.settings import load

FILE = ROOT / "docker-compose.yml"
COMPOSE = read_yaml(FILE)
SERVICES: dict[str, Any] = COMPOSE["services"]
PROFILES = {
    "embedded": {"tocsin"},
    "shared": {"redis", "web", "worker"},
    "gpu": {"tocsin-gpu"},
    "monitoring": {"prometheus", "alertmanager", "grafana"},
}
OURS = {"tocsin", "tocsin-gpu", "web", "worker"}
every_service = pytest.mark.parametrize("name", SERVICES)


def secrets_in(folder: Path, *words: str) -> Path:
    made = folder / "secrets"
    done = subprocess.run([DEPLOY / "make-secrets", *words, made], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


def services_by(tool: str, *profiles: str) -> set[str]:
    """The services that Compose would start; it takes the file without a warning."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} isn't installed")
    named = [word for profile in profiles for word in ("--profile", profile)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("COMPOSE_", "TOCSIN_"))}
    command = [tool, "--file", FILE, *named, "config"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARN" not in done.stderr
    return set(YAML(typ="safe").load(done.stdout)["services"])


@pytest.mark.parametrize("profile", PROFILES)
def test_compose_starts_what_the_profile_promises(profile: str) -> None:
    current = Path(sys.executable).with_name("docker-compose")  # from PyPI
    assert services_by(str(current), profile) == PROFILES[profile]


def test_the_last_compose_of_its_kind_takes_the_file() -> None:
    """Debian's, written in Python; it shows the services of all profiles."""
    assert services_by("/usr/bin/docker-compose", *PROFILES) == set(SERVICES)


@every_service
def test_nothing_starts_unless_its_profile_is_named(name: str) -> None:
    (profile,) = SERVICES[name]["profiles"]
    assert name in PROFILES[profile]


@every_service
def test_a_container_can_do_little(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert service["mem_limit"]
    assert service["cpus"]
    assert service["pids_limit"]
    assert "privileged" not in service
    for volume in service["volumes"]:
        source, _, mode = (*volume.split(":"), "")[:3]
        assert mode == "ro" if source.startswith(".") else source in COMPOSE["volumes"]


@every_service
def test_images_are_pinned_and_checked(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[a-z/]+:(cpu|cuda|v?\d+\.\d+[\w.-]*)", service["image"])
    if name in OURS:
        assert service["image"].split(":")[1] == service["build"]["target"]  # its health check is in the image
    else:
        assert service["healthcheck"]["test"]


def test_only_people_and_trainers_come_in_and_only_from_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    api = ["${TOCSIN_BIND:-127.0.0.1}:8765:8765"]
    grafana = ["127.0.0.1:3000:3000"]
    assert published == {"tocsin": api, "tocsin-gpu": api, "web": api, "grafana": grafana}
    internal = {name for name, network in COMPOSE["networks"].items() if network.get("internal")}
    assert set(SERVICES["redis"]["networks"]) == {"store"} <= internal
    assert set(SERVICES["prometheus"]["networks"]) == {"monitoring"} <= internal


def test_what_is_mounted_exists() -> None:
    for name, service in SERVICES.items():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith(".") or (ROOT / source).exists(), f"{name}: {source}"


def test_every_secret_is_declared_and_made(tmp_path: Path) -> None:
    made = {path.name for path in secrets_in(tmp_path).iterdir()}
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", ())}
    assert set(COMPOSE["secrets"]) == used <= made
    for name, secret in COMPOSE["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}


@every_service
def test_a_secret_that_is_read_is_mounted(name: str) -> None:
    """Those named in the service's own entry, and in the files that are mounted into it."""
    service = SERVICES[name]
    sources = [ROOT / volume.split(":")[0] for volume in service["volumes"] if volume.startswith(".")]
    files = [file for source in sources for file in (source.rglob("*") if source.is_dir() else [source])]
    # A program reads one file of the folder that is mounted, and not deploy/prometheus/prometheus.yml.
    told = [
        file.read_text()
        for file in files
        if file.suffix in {".toml", ".conf", ".yml"} and file.name != "prometheus.yml"
    ]
    named = set(re.findall(r"/run/secrets/([\w-]+)", " ".join([str(service), *told])))
    assert named <= set(service.get("secrets", ())), name


def test_no_password_stands_in_the_file() -> None:
    for service in SERVICES.values():
        for key, value in service.get("environment", {}).items():
            secret = re.search(r"PASSWORD|TOKEN|SECRET", key)
            assert not secret or key.endswith("_FILE"), key
            assert not secret or value.startswith("/run/secrets/"), key


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_settings_are_known_and_allowed(name: str, tmp_path: Path) -> None:
    """Loads what the container would load, with the secrets of this machine."""
    secrets = secrets_in(tmp_path)
    toml = tmp_path / "tocsin.toml"
    commented = (DEPLOY / "compose" / "tocsin.toml").read_text()
    toml.write_text(re.sub(r"^# (\w+ = )", r"\1", commented, flags=re.MULTILINE).replace("/run/secrets", str(secrets)))
    variables = {
        key: re.sub(r"\$\{\w+:-(.*)\}", r"\1", str(value)).replace("/run/secrets", str(secrets))
        for key, value in SERVICES[name]["environment"].items()
    }
    settings = load(environ=variables | {"TOCSIN_CONFIG": str(toml), "TOCSIN_HOST": "0.0.0.0"})
    assert (settings.store is not None) == (SERVICES[name]["profiles"] == ["shared"])
    assert settings.tokens
    assert settings.slack_webhook is not None  # as the file shows how to
    arguments = _parser().parse_args(SERVICES[name].get("command") or ["serve"])
    assert arguments.command


def test_secrets_are_for_their_reader_alone(tmp_path: Path) -> None:
    made = secrets_in(tmp_path)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in made.iterdir()} == {0o444}
    random = [
        path.read_text() for path in made.iterdir() if path.name not in {"tokens", "redis-users", "slack-webhook"}
    ]
    assert len(set(random)) == len(random)
    assert all(re.fullmatch("[0-9a-f]{64}", secret) for secret in random)
    files = "".join((made / name).read_text() for name in ("tokens", "redis-users"))
    assert not any(secret in files for secret in random)  # only their hashes
    scopes = {token.name: set(token.scopes) for token in parse_tokens((made / "tokens").read_text())}
    assert scopes == {"trainer": {Scope.INGEST}, "reader": {Scope.READ}, "admin": set(Scope)}


def test_secrets_that_exist_are_left_alone(tmp_path: Path) -> None:
    made = secrets_in(tmp_path)
    before = {path.name: path.read_text() for path in made.iterdir()}
    again = subprocess.run([DEPLOY / "make-secrets", made], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "exists already" in again.stderr
    assert {path.name: path.read_text() for path in made.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["secrets"]  # no remains


def test_the_address_of_slack_is_taken_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "address").write_text("https://hooks.slack.com/services/T/B/x\n")
    made = secrets_in(tmp_path, "--slack-webhook", str(tmp_path / "address"))
    assert (made / "slack-webhook").read_text() == "https://hooks.slack.com/services/T/B/x"


@pytest.mark.parametrize("words", [["--slack-webhook", "missing"], ["--unknown"]])
def test_make_secrets_refuses_what_it_does_not_understand(tmp_path: Path, words: list[str]) -> None:
    done = subprocess.run([DEPLOY / "make-secrets", *words], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode != 0
    assert not list(tmp_path.iterdir())


def test_prometheus_of_the_containers_is_that_of_the_machine() -> None:
    """deploy/compose/prometheus.yml differs from deploy/prometheus/prometheus.yml in addresses alone."""
    ours, theirs = read_yaml(DEPLOY / "compose/prometheus.yml"), read_yaml(DEPLOY / "prometheus/prometheus.yml")
    assert ours["global"] == theirs["global"]
    assert {Path(name).name for name in ours["rule_files"]} == {"*.rules.yml"}
    assert all(name.endswith(".rules.yml") for name in theirs["rule_files"])
    jobs = [{job["job_name"]: job for job in config["scrape_configs"]} for config in (ours, theirs)]
    assert set(jobs[1]) <= set(jobs[0])
    for name, job in jobs[1].items():
        for key in ("metric_relabel_configs", "relabel_configs", "metrics_path", "params"):
            assert jobs[0][name].get(key) == job.get(key), f"{name}: {key}"
