"""deploy/kubernetes: rendered by kubectl where there is one, valid by Kubernetes' own schemas, and fit for Tocsin."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.deploy import dockerfile
from tests.deploy.native import DEPLOY, needs

from tocsin_service.cli import _parser
from tocsin_service.settings import load

FOLDER = DEPLOY / "kubernetes"
VERSIONS = ("1.33.0", "1.37.0")  # of the schemas: the oldest and the newest of kubernetes-validate
SECRET = {"tokens": "trainer ingest long-enough\n", "redis-password": "pw", "redis-address": "redis://redis:6379/0"}
STAGES = 8  # of a stop: the HTTP server, what judges and keeps, and a few receivers
MOUNTED = "/run/secrets/tocsin"

variants = pytest.mark.parametrize("variant", ["embedded", "shared"])


@cache
def objects(variant: str) -> tuple[dict[str, Any], ...]:
    """All objects of a variant as they stand in the files, with the ConfigMap that kustomize generates."""
    found: list[dict[str, Any]] = []
    for folder in (FOLDER / "base", FOLDER / variant):
        listed = read(folder / "kustomization.yaml")[0]
        for name in listed["resources"]:
            if name != "../base":
                found += read(folder / name)
        for made in listed.get("configMapGenerator", ()):
            data = {name: (folder / name).read_text() for name in made["files"]}
            found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": made["name"]}, "data": data})
    return tuple(found)


def read(path: Path) -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load_all(path.read_text()))


def workloads(variant: str) -> list[dict[str, Any]]:
    return [one for one in objects(variant) if one["kind"] in {"Deployment", "StatefulSet"}]


def pod(workload: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Mapping[str, Any]) -> dict[str, Any]:
    (one,) = pod(workload)["containers"]
    return dict(one)


def selected(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


def labels(workload: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return found


@variants
@pytest.mark.parametrize("version", VERSIONS)
def test_the_objects_are_valid(variant: str, version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for one in objects(variant):
        validator.validate(one, version, strict=True)


@variants
def test_kustomize_renders_the_same_objects(variant: str) -> None:
    command = [needs("kubectl"), "kustomize", FOLDER / variant]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "unknown command" in done.stderr:
        pytest.skip("this kubectl is too old")
    assert done.returncode == 0, done.stderr
    names = {(one["kind"], one["metadata"]["name"]) for one in objects(variant) if one["kind"] != "ConfigMap"}
    rendered = list(YAML(typ="safe").load_all(done.stdout))
    assert {(one["kind"], one["metadata"]["name"]) for one in rendered if one["kind"] != "ConfigMap"} == names
    (config,) = (one for one in rendered if one["kind"] == "ConfigMap")
    for one in rendered:
        if one["kind"] in {"Deployment", "StatefulSet"}:  # a change of settings is a new name, and so a new pod
            assert pod(one)["volumes"][0]["configMap"]["name"] == config["metadata"]["name"]


@variants
def test_a_pod_can_do_little(variant: str) -> None:
    """What Kubernetes' own level `restricted` asks for, and more."""
    for workload in workloads(variant):
        spec, inner = pod(workload), container(workload)["securityContext"]
        user = int(dockerfile.values("USER")[0].split(":")[0])
        assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] == user
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert inner["allowPrivilegeEscalation"] is False
        assert inner["readOnlyRootFilesystem"] is True
        assert inner["capabilities"] == {"drop": ["ALL"]}
        assert spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert container(workload)["resources"]["limits"]["memory"]


@variants
def test_kubernetes_adds_no_settings_of_its_own(variant: str) -> None:
    """A Service called tocsin would be TOCSIN_PORT in the environment of every pod."""
    assert any(one["kind"] == "Service" and one["metadata"]["name"] == "tocsin" for one in objects(variant))
    assert all(pod(workload)["enableServiceLinks"] is False for workload in workloads(variant))


@variants
def test_whoever_selects_pods_finds_them(variant: str) -> None:
    pods = [labels(workload) for workload in workloads(variant)]
    for workload in workloads(variant):
        assert workload["spec"]["selector"]["matchLabels"] == labels(workload)
        for spread in pod(workload).get("topologySpreadConstraints", ()):
            assert spread["labelSelector"]["matchLabels"] == labels(workload)
    for one in objects(variant):
        if one["kind"] == "PodDisruptionBudget":
            assert one["spec"]["selector"]["matchLabels"] in pods
        if one["kind"] == "NetworkPolicy":
            assert all(selected(one["spec"]["podSelector"]["matchLabels"], found) for found in pods)
        if one["kind"] == "Service":  # the API's pods alone
            found = [one for one in pods if selected(_selector(objects(variant)), one)]
            assert [one["app.kubernetes.io/component"] for one in found] == ["api"]


def _selector(found: tuple[dict[str, Any], ...]) -> dict[str, str]:
    (service,) = (one for one in found if one["kind"] == "Service")
    selector: dict[str, str] = service["spec"]["selector"]
    return selector


@variants
def test_ports_have_one_name(variant: str) -> None:
    (exposed,) = (int(port) for port in dockerfile.values("EXPOSE"))
    for workload in workloads(variant):
        inner = container(workload)
        assert inner["ports"] == [{"name": "http", "containerPort": exposed}]
        probes = [inner[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
        assert [probe["port"] for probe in probes] == ["http"] * 3
        assert [probe["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]
    for one in objects(variant):
        if one["kind"] == "Service":
            assert [(port["port"], port["targetPort"]) for port in one["spec"]["ports"]] == [(exposed, "http")]
        if one["kind"] == "NetworkPolicy":
            assert [port["port"] for rule in one["spec"]["ingress"] for port in rule["ports"]] == ["http"]


@variants
def test_volumes_and_mounts_fit(variant: str) -> None:
    for workload in workloads(variant):
        given = {volume["name"] for volume in pod(workload)["volumes"]}
        given |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
        mounts = container(workload)["volumeMounts"]
        assert {mount["name"] for mount in mounts} == given
        writable = {mount["mountPath"] for mount in mounts if not mount.get("readOnly")}
        assert writable == ({"/tmp", "/var/lib/tocsin"} if variant == "embedded" else {"/tmp"})  # noqa: S108


@variants
def test_the_settings_are_known_and_allowed(variant: str, tmp_path: Path) -> None:
    """Loads what a pod would load; the comments of the file show keys that are right."""
    for name, text in (SECRET | {"slack-webhook": "https://hooks.slack.com/x", "link-secret": "x" * 64}).items():
        (tmp_path / name).write_text(text)
    (config,) = (one["data"]["tocsin.toml"] for one in objects(variant) if one["kind"] == "ConfigMap")
    for shown in (config, _uncommented(config)):
        (tmp_path / "tocsin.toml").write_text(shown.replace(MOUNTED, str(tmp_path)))
        for workload in workloads(variant):
            variables = dockerfile.environment() | _environment(workload, tmp_path)
            settings = load(environ=variables)
            assert (settings.store is not None) == (variant == "shared")
            assert settings.host == "0.0.0.0"
            arguments = _parser().parse_args(container(workload)["args"])
            assert arguments.command
            grace = pod(workload)["terminationGracePeriodSeconds"]
            assert grace > 5 + STAGES * settings.stop_seconds


def _uncommented(config: str) -> str:
    lines = [line.removeprefix("# ") if " = " in line else line for line in config.splitlines()]
    return "\n".join(lines)


def _environment(workload: Mapping[str, Any], folder: Path) -> dict[str, str]:
    found = {}
    for variable in container(workload)["env"]:
        if "value" in variable:
            found[variable["name"]] = variable["value"].replace("/etc/tocsin", str(folder))
        else:
            reference = variable["valueFrom"]["secretKeyRef"]
            assert reference["name"] == "tocsin"
            found[variable["name"]] = SECRET[reference["key"]]
    return found


def test_no_secret_is_shipped() -> None:
    assert not any(one["kind"] == "Secret" for variant in ("embedded", "shared") for one in objects(variant))
