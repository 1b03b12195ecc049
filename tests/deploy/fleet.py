"""docker-compose.yml's profiles `shared` and `monitoring`, run natively with the same files and other addresses."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.deploy import dockerfile
from tests.deploy.native import DEPLOY, LISTENING, ROOT, Program, read_yaml, receiver, replaced, start

TOCSIN = [sys.executable, "-m", "tocsin_service"]
PIECES = re.compile(r"(?<!\w)/(?:run/secrets|etc/tocsin|var/lib/tocsin|tmp)\b")


@dataclass
class Fleet:
    """Everything of the two profiles that is installed here, running.

    Attributes:
        folder: secrets and settings, as the containers would see them.
        services: what docker-compose.yml says of each.
        web, workers: their addresses.
    """

    folder: Path
    services: dict[str, Any]
    redis_port: str = ""
    web: str = ""
    workers: tuple[str, ...] = ()

    def token(self, name: str) -> str:
        return (self.folder / "run/secrets" / f"{name}-token").read_text()

    def here(self, text: str) -> str:
        """A container's paths as paths of this machine, and what Compose takes from the shell as its defaults."""
        text = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", text)
        return PIECES.sub(lambda found: f"{self.folder}{found.group()}", text)

    def start(self, stack: ExitStack, name: str) -> Program:
        """A service of Tocsin's own image, on a free port."""
        service = self.services[name]
        variables = {**dockerfile.environment(), **service["environment"], "TOCSIN_PORT": "0"}
        here = {key: self.here(value) for key, value in variables.items()}
        here["TOCSIN_STORE"] = replaced(here["TOCSIN_STORE"], {"redis:6379": f"127.0.0.1:{self.redis_port}"})
        command = service.get("command") or ["serve"]
        return start(stack, [*TOCSIN, *command], here, cwd=self.folder)


def _prepare(folder: Path, slack: str) -> None:
    (folder / "run").mkdir()
    (folder / "slack").write_text(slack)
    made = [DEPLOY / "make-secrets", "--slack-webhook", folder / "slack", folder / "run/secrets"]
    subprocess.run(made, check=True, timeout=30)
    for path in ("etc/tocsin", "var/lib/tocsin", "tmp"):
        (folder / path).mkdir(parents=True)


def _start_redis(stack: ExitStack, fleet: Fleet) -> None:
    places = {"port 6379": "port 0", "bind * -::*": "bind 127.0.0.1", "dir /data": f"dir {fleet.folder}/data"}
    secrets = {"/run/secrets/": f"{fleet.folder}/run/secrets/"}
    config = replaced((DEPLOY / "compose/redis.conf").read_text(), places | secrets)
    (fleet.folder / "data").mkdir()
    for _ in range(10):  # another process may take the port that was free a moment ago
        fleet.redis_port = str(_free_port())
        (fleet.folder / "redis.conf").write_text(config.replace("port 0", f"port {fleet.redis_port}"))
        program, *_ = fleet.services["redis"]["command"]
        server = start(stack, [program, fleet.folder / "redis.conf"], {})
        if "eady" in server.said("(R|r)eady to accept connections|Failed listening on port").group():
            return
    pytest.fail("redis-server found no port")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_fleet(stack: ExitStack) -> Fleet:
    """Redis, the API and two workers, as the profile `shared` starts them; workers tell a stand-in for Slack."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tocsin-deploy-")))
    _prepare(folder, receiver(stack))
    toml = (DEPLOY / "compose/tocsin.toml").read_text()
    slack = {"# slack_webhook_file": "slack_webhook_file", "/run/secrets": f"{folder}/run/secrets"}
    (folder / "etc/tocsin/tocsin.toml").write_text(replaced(toml, slack))
    made = Fleet(folder, read_yaml(ROOT / "docker-compose.yml")["services"])
    _start_redis(stack, made)
    workers = [made.start(stack, "worker") for _ in range(made.services["worker"]["deploy"]["replicas"])]
    made.web = made.start(stack, "web").said(LISTENING).group(1)
    made.workers = tuple(worker.said(LISTENING).group(1) for worker in workers)
    return made


def start_prometheus(stack: ExitStack, fleet: Fleet) -> str:
    """Prometheus with the file of docker-compose.yml, quicker and with the fleet's addresses; its own address."""
    config = read_yaml(DEPLOY / "compose/prometheus.yml")
    text = (DEPLOY / "compose/prometheus.yml").read_text()
    (discovery,) = next(job for job in config["scrape_configs"] if "dns_sd_configs" in job)["dns_sd_configs"]
    assert discovery["names"] == ["worker"]  # Docker's name for every replica of that service
    found = re.search(r" {4}dns_sd_configs:\n( {6}.*\n)+", text)
    assert found is not None
    workers = ", ".join(f'"{address.removeprefix("http://")}"' for address in fleet.workers)
    places = {
        found.group(): f"    static_configs:\n      - targets: [{workers}]\n",
        "tocsin:8765": fleet.web.removeprefix("http://"),
        "scrape_interval: 15s": "scrape_interval: 2s",
        "evaluation_interval: 15s": "evaluation_interval: 1s",
        "rules/*.rules.yml": f"{DEPLOY}/prometheus/*.rules.yml",
        "/run/secrets/": f"{fleet.folder}/run/secrets/",
        "alertmanager:9093": "127.0.0.1:9",  # there is none
    }
    path = fleet.folder / "prometheus.yml"
    path.write_text(replaced(text, places))
    flags = [flag.split("=")[0] for flag in fleet.services["prometheus"]["command"]]
    assert "--storage.tsdb.path" in flags
    command = [f"--config.file={path}", f"--storage.tsdb.path={fleet.folder}/prometheus"]
    server = start(stack, ["prometheus", *command, "--web.listen-address=127.0.0.1:0"], {})
    server.said("Server is ready to receive web requests")
    return "http://" + server.said(r"Listening on. address=(127\S+)").group(1)
