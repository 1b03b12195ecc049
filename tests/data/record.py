"""Records real training runs: `python tests/data/record.py [NAME ...] [--out DIR] [--steps N] [--jobs N]`.

Every run trains a tiny language model with a real trainer of TRL, without a network, in a process of its own; most
take less than a minute. `runs/README.md` says what is recorded and which packages it needs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from recording_index import describe, read_rows, table, update_index
from recording_runs import RUNS, RunSpec

HERE = Path(__file__).parent
PACKAGES = ("torch", "transformers", "trl")
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "OMP_NUM_THREADS": "1",  # one thread: quicker for so small a model, and the same sums each time
}


def package_versions() -> dict[str, str]:
    try:
        return {name: version(name) for name in PACKAGES}
    except PackageNotFoundError as missing:
        raise SystemExit(f"{missing.name} is not installed: pip install -e '.[record]'") from missing


def algorithms_here(versions: dict[str, str]) -> set[str]:
    """TRL ships GRPOTrainer always, its PPOTrainer from 1.0 to 1.12 under `trl.experimental.ppo`."""
    major, minor = (int(part) for part in versions["trl"].split(".")[:2])
    return {"grpo", "ppo"} if (major, minor) <= (1, 12) else {"grpo"}


def record(spec: RunSpec, steps: int, out: Path, versions: dict[str, str]) -> dict[str, Any]:
    """Trains one run, writes its file, prints its table and returns its entry for the index."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "run.jsonl"
        command = [sys.executable, str(HERE / f"recording_{spec.algorithm}.py"), spec.name, str(steps), str(fresh)]
        done = subprocess.run(command, env=os.environ | OFFLINE, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{spec.name} was not recorded, its training failed:\n{done.stderr[-2000:]}")
        rows = read_rows(fresh)
        (out / f"{spec.name}.jsonl").write_bytes(fresh.read_bytes())
    print(table(spec, rows), flush=True)
    return describe(spec, rows, versions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which runs (default: all): {', '.join(RUNS)}")
    parser.add_argument("--out", type=Path, default=HERE / "runs", metavar="DIR", help="where the files go")
    parser.add_argument("--steps", type=int, metavar="N", help="steps of each run (default: what the run says)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (default: 1)")
    options = parser.parse_args()
    if unknown := set(options.names) - set(RUNS):
        parser.error(f"no such run: {', '.join(sorted(unknown))}; choose from {', '.join(RUNS)}")
    versions = package_versions()
    possible = algorithms_here(versions)
    specs = [RUNS[name] for name in options.names or RUNS]
    for spec in specs:
        if spec.algorithm not in possible:
            print(f"{spec.name} skipped: TRL {versions['trl']} has no PPOTrainer; pip install 'trl==1.12.0' for it")
    options.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        wanted = [spec for spec in specs if spec.algorithm in possible]
        for entry in pool.map(lambda spec: record(spec, options.steps or spec.steps, options.out, versions), wanted):
            update_index(options.out, entry, list(RUNS))


if __name__ == "__main__":
    main()
