"""deploy/Dockerfile without a container engine: linted, and its steps done by hand as far as that goes."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.deploy import dockerfile
from tests.deploy.native import DEPLOY, LISTENING, ROOT, Program, call, start, until
from tests.service.tensor_bodies import pack, ragged

from tocsin_service.cli import _parser

UID = 10001
PLACES = ("state", "temporary")  # instead of /var/lib/tocsin and /tmp
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOKEN = "a-token-of-this-test"  # noqa: S105

pytestmark = pytest.mark.timeout(300)  # a slow machine may have to compile torch, too


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = shutil.which(str(Path(sys.executable).with_name("hadolint"))) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint isn't installed")
    done = subprocess.run([hadolint, dockerfile.FILE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_the_bases_are_pinned_to_the_python_of_the_tests() -> None:
    (python,) = {rest for rest in dockerfile.values("ARG") if rest.startswith("PYTHON=")}
    assert re.fullmatch(r"PYTHON=3\.\d+-slim-\w+", python)
    assert all(re.match(r"(python:\$\{PYTHON\}|runtime) AS \w+", rest) for rest in dockerfile.values("FROM"))
    assert [rest.split()[-1] for rest in dockerfile.values("FROM")][-2:] == ["cuda", "cpu"]  # the default is last


def test_torch_is_the_one_that_is_tested_and_the_extras_exist() -> None:
    extras = PROJECT["optional-dependencies"]
    pinned = next(one.removeprefix("torch==") for one in extras["test"] if one.startswith("torch=="))
    arguments = [rest.split("=", 1) for rest in dockerfile.values("ARG")]
    assert {value for name, value in arguments if name == "TORCH"} == {pinned}
    assert {extra for name, value in arguments if name == "EXTRAS" for extra in value.split(",")} <= set(extras)


def test_it_runs_as_nobody_in_particular_and_ends_gracefully() -> None:
    assert dockerfile.values("USER") == [f"{UID}:{UID}"]
    assert dockerfile.values("STOPSIGNAL") == ["SIGTERM"]
    assert not any(name == "ADD" for name, _ in dockerfile.instructions())
    (entry,) = (json.loads(rest) for rest in dockerfile.values("ENTRYPOINT"))
    assert entry == ["/opt/tocsin/bin/tocsin"]
    (words,) = (json.loads(rest) for rest in dockerfile.values("CMD"))
    assert _parser().parse_args(words).command


def test_the_health_check_fits_its_limit() -> None:
    (check,) = dockerfile.values("HEALTHCHECK")
    words = json.loads(check[check.index("[") :])
    (copied,) = (rest.split()[1] for rest in dockerfile.values("COPY") if "healthcheck" in rest)
    assert words == ["/opt/tocsin/bin/python", copied]
    seconds = re.search(r"^SECONDS = ([\d.]+)", (DEPLOY / "docker/healthcheck.py").read_text(), re.MULTILINE)
    limit = re.search(r"--timeout=(\d+)s", check)
    assert seconds is not None
    assert limit is not None
    assert float(seconds.group(1)) < float(limit.group(1))


def admitted(path: Path) -> bool:
    """Whether .dockerignore lets a file of the repository into the build; the last line that fits decides."""
    found = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!").removeprefix("**/")
        names = [path.name] if "**/" in line else [str(one) for one in (path, *path.parents)]
        if line.startswith("**/"):
            names += path.parts
        if any(fnmatch.fnmatchcase(name, pattern) for name in names):
            found = line.startswith("!")
    return found


def test_what_is_copied_is_there_and_nothing_else_gets_in() -> None:
    for source in dockerfile.copied():
        assert (ROOT / source).exists(), source
        assert admitted(source), f"{source} is kept out by .dockerignore"
    for outside in ("secrets/tokens", ".git/config", "tests/conftest.py", ".env", "tocsin.db", ".venv/pyvenv.cfg"):
        assert not admitted(Path(outside)), outside
    assert not admitted(Path("service/tocsin_service/__pycache__/cli.cpython-311.pyc"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from nothing but what the Dockerfile copies."""
    pytest.importorskip("hatchling")
    context = tmp_path_factory.mktemp("context")
    for source in dockerfile.copied():
        (context / source).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, context / source, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / source, context / source)
    (step,) = (rest for rest in dockerfile.values("RUN") if "pip wheel" in rest)
    command = step.replace("/dist", str(context / "dist")).split()
    build = [sys.executable, "-m", *command[:2], "--no-build-isolation", "--disable-pip-version-check", *command[2:]]
    done = subprocess.run(build, cwd=context, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = (context / "dist").glob("tocsin-*.whl")
    return made


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    for package in ("clients/tocsin", "detectors/tocsin_detectors", "service/tocsin_service"):
        files = [path for path in (ROOT / package).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert {str(path.relative_to((ROOT / package).parent)) for path in files} <= packed
    assert {"tocsin_service/commands/demo_run.jsonl", "tocsin_service/pages/page.css"} <= packed
    demo = zipfile.ZipFile(wheel).read("tocsin_service/commands/demo_run.jsonl")
    assert demo.startswith(b"{")  # the recording, and not the link to it


@pytest.fixture(scope="module")
def image(wheel: Path) -> Iterator[Path]:
    """A folder that everybody can read, with the wheel installed and the two places that may be written."""
    with tempfile.TemporaryDirectory(prefix="tocsin-image-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        install = ["install", "--quiet", "--no-compile", "--no-deps", "--no-index", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", *install, "--target", folder / "opt", wheel]
        subprocess.run(command, check=True, timeout=300)
        for place in PLACES:
            (folder / place).mkdir()
            if os.geteuid() == 0:
                os.chown(folder / place, UID, UID)
        for place in ("python", "lib"):  # what the interpreter and the libraries are mounted on
            (folder / place).mkdir()
        shutil.copy(DEPLOY / "docker/healthcheck.py", folder)
        (folder / "tokens").write_text(TOKEN)
        yield folder


def variables(image: Path) -> dict[str, str]:
    """The image's own environment, without HOME, and what whoever runs it adds."""
    here = {"/var/lib/tocsin": f"{image}/state", "/tmp": f"{image}/temporary"}  # noqa: S108 - the image's
    made = {
        name: re.sub("^(/var/lib/tocsin|/tmp)", lambda found: here[found.group()], value)
        for name, value in dockerfile.environment().items()
    }
    return made | {"TOCSIN_TOKEN_FILE": f"{image}/tokens", "TMPDIR": f"{image}/temporary"}


@pytest.fixture(scope="module")
def locked_in(image: Path) -> list[str]:
    """The beginning of a command line: Python as the image's user, with two places alone that can be written.

    That takes root and a kernel that lets us; elsewhere it is this user, with nothing but the environment of the image.
    """
    home, libraries = sys.base_prefix, sysconfig.get_paths()["purelib"]
    mounts = [(home, "python"), (libraries, "lib"), *((f"{image}/{name}", name) for name in PLACES)]
    steps = [f"mount --bind {source} {image}/{target}" for source, target in mounts]
    lock = ["unshare", "--mount", "sh", "-ec", " && ".join([*steps, "mount -o remount,bind,ro /", 'exec "$@"']), "sh"]
    user = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    python = f"{image}/python/bin/python3.{sys.version_info.minor}"
    paths = [f"LD_LIBRARY_PATH={image}/python/lib", f"PYTHONPATH={image}/opt:{image}/lib"]
    command = [*lock, *user, "env", *paths, python]
    numba = find_spec("numba")
    if numba is not None and not Path(numba.cached or "").exists():
        # Nothing can be kept there later, and each process would compile all of it again.
        subprocess.run([sys.executable, "-c", "import numba, torch"], check=True, timeout=300)
    probe = [*command, "-c", "import ssl, numpy"]
    if os.geteuid() == 0 and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        return command
    return ["env", f"PYTHONPATH={image}/opt:{libraries}", sys.executable]


@pytest.fixture
def container(image: Path, locked_in: list[str]) -> Iterator[tuple[Program, str, dict[str, str]]]:
    """The process, its address, and its environment."""
    with ExitStack() as stack:
        environment = variables(image) | {"TOCSIN_PORT": "0"}
        command = [*locked_in, image / "opt/bin/tocsin", *json.loads(dockerfile.values("CMD")[0])]
        program = start(stack, command, environment, cwd=image)
        address = program.said(LISTENING).group(1)
        yield program, address, environment | {"TOCSIN_PORT": address.rsplit(":", 1)[1]}


def healthy(image: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, image / "healthcheck.py"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_installed_wheel_serves_where_almost_nothing_can_be_written(
    image: Path, container: tuple[Program, str, dict[str, str]]
) -> None:
    program, address, environment = container
    assert call(address, "/v1/runs/run/steps", TOKEN, {"step": 1, "metrics": {"loss": 1.0}})[0] == 202
    wide = {name: tensor.astype(float) if tensor.dtype.kind == "f" else tensor for name, tensor in ragged().items()}
    status, body = call(address, "/v1/runs/run/tensors?step=1", TOKEN, pack(wide))  # float64: torch without numba
    assert status in {200, 202}, body
    # While torch is loaded it may be slow to answer.
    until(lambda: healthy(image, environment).returncode == 0, "health")
    assert program.end() == 0
    assert (image / "state/tocsin.db").stat().st_size > 0
    after = healthy(image, environment)
    assert after.returncode == 1
    assert "refused" in after.stderr


def test_what_is_compiled_is_kept_where_it_may_be(image: Path, locked_in: list[str]) -> None:
    code = """if True:
        import numpy as np
        from tocsin_detectors.rollout_corr.kernel import _subtract
        _subtract(*np.ones((3, 8), np.float32))
        print(_subtract.stats.cache_path)
    """
    command = [*locked_in, "-c", code]
    done = subprocess.run(command, env=variables(image), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    place = Path(done.stdout.strip())
    assert place.is_relative_to(image / "temporary/numba")
    assert list(place.glob("*.nbi"))


def test_it_refuses_to_listen_to_everybody_without_a_token(image: Path, locked_in: list[str]) -> None:
    with ExitStack() as stack:
        environment = {name: value for name, value in variables(image).items() if name != "TOCSIN_TOKEN_FILE"}
        program = start(stack, [*locked_in, image / "opt/bin/tocsin", "serve"], environment, cwd=image)
        program.said("no token")
        assert program.popen.wait(60) == 2
