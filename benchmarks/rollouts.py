"""What the rollout log costs and how quickly it answers, beside a scan of the same rows as JSONL.

    python benchmarks/rollouts.py [--rows 1000000] [--step-rows 1000] [--repeats 5]

Rows as a math run has them: the rollouts of one prompt share it, responses of 100 to 2,000 characters are put together
from a vocabulary of 2,000 words, rewards are 0 or 1 less a length penalty. Writing is what the service does with a
request after it was received: decode, measure, compress, sync; merging is what it does later. The questions are those
of the API, asked in this process: without HTTP and JSON on both sides. The files are in the page cache for both.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tocsin_service.rollouts.decoding import decode
from tocsin_service.rollouts.files import Folder, digest, key_of, scan_all
from tocsin_service.rollouts.queries import Choice, Queries
from tocsin_service.rollouts.redaction import Redaction
from tocsin_service.rollouts.sampling import Sampling
from tocsin_service.rollouts.writing import Keeper, Step, measured

MIB = 2**20
GROUP = 8


def bodies(steps: int, rows: int) -> Iterator[bytes]:
    """One request's NDJSON a step."""
    random = np.random.default_rng(0)
    words = ["".join(map(chr, random.integers(97, 123, random.integers(2, 9)))) for _ in range(2000)]
    for step in range(steps):
        lines = []
        for row in range(rows):
            if row % GROUP == 0:
                prompt = " ".join(words[index] for index in random.integers(0, 2000, 40))
            text = " ".join(words[index] for index in random.integers(0, 2000, random.integers(16, 330)))
            score = float(random.random() < 0.2 + 0.6 * step / steps)
            lines.append(
                json.dumps(
                    {
                        "prompt": prompt,
                        "response": text,
                        "reward": score - len(text) / 20_000,
                        "scores": {"score": score, "format": 1.0},
                        "group": f"{step}-{row // GROUP}",
                        "domain": ("math", "code")[row // GROUP % 2],
                        "length": len(text) // 4,
                        "finish_reason": "stop",
                        "index": row,
                    }
                )
            )
        yield "\n".join(lines).encode()


def fill(root: Path, plain: Path, steps: int, rows: int) -> None:
    keeper = Keeper(root, Sampling(), Redaction(None, None), 2**40, 0.0)
    took: dict[str, list[float]] = {"decode": [], "measure": [], "keep": []}
    merging, sent = 0.0, 0
    with plain.open("wb") as log:
        for step, body in enumerate(bodies(steps, rows)):
            sent += len(body)
            log.write(body + b"\n")
            begin = time.perf_counter()
            table, _ = decode(body, "application/x-ndjson", 2**30)
            decoded = time.perf_counter()
            found = measured(table, None)
            looked = time.perf_counter()
            keeper.keep(Step("run", step, None, 1.7e9 + step, key_of(step, digest(body))), found)
            kept = time.perf_counter()
            keeper.tidy("run")
            merging += time.perf_counter() - kept
            for name, seconds in zip(took, (decoded - begin, looked - decoded, kept - looked), strict=True):
                took[name].append(seconds)
    stored = sum(one.size for one in scan_all(root))
    each = {name: statistics.median(times) for name, times in took.items()}
    print("| a request, median | seconds |")
    print("| --- | ---: |")
    for name, seconds in each.items():
        print(f"| {name} | {seconds:.3f} |")
    print(f"| all | {sum(each.values()):.3f} |")
    print(f"| merging, by request | {merging / steps:.3f} |")
    print()
    print(f"{steps * rows:,} rows, {sent / MIB:,.0f} MiB of JSONL: {stored / MIB:,.0f} MiB in", end=" ")
    print(f"{len(Folder(root, 'run').files())} files; {rows / sum(each.values()):,.0f} rows/s.")


def scan(plain: Path, wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    with plain.open("rb") as log:
        return [row for row in map(json.loads, log) if wanted(row)]


def extremes_by_scan(plain: Path, count: int) -> list[dict[str, Any]]:
    lowest: list[tuple[float, int, dict[str, Any]]] = []
    with plain.open("rb") as log:
        for number, line in enumerate(log):
            row = json.loads(line)
            lowest.append((row["reward"], number, row))
            if len(lowest) > 1000:
                lowest = sorted(lowest)[:count]
    return [row for _, _, row in sorted(lowest)[:count]]


def timed(question: Callable[[], Any], repeats: int) -> tuple[float, float, Any]:
    """The first time, and the median of the rest."""
    times, answer = [], None
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        answer = question()
        times.append(time.perf_counter() - begin)
    return times[0], statistics.median(times[1:]), answer


def ask(root: Path, plain: Path, steps: int, rows: int, repeats: int) -> None:
    queries = Queries(root)
    middle = steps // 2
    groups = {f"{middle}-{number}" for number in range(rows // GROUP + 1)}
    begin = time.perf_counter()
    by_scan = scan(plain, lambda row: row["group"] in groups)
    step_scan = time.perf_counter() - begin
    begin = time.perf_counter()
    worst = extremes_by_scan(plain, 20)
    extreme_scan = time.perf_counter() - begin
    questions: list[tuple[str, Callable[[], Any], float | None]] = [
        ("all rows of one step", lambda: queries.rows("run", Choice(middle, middle, limit=rows)), step_scan),
        (
            "20 of one step, by reward",
            lambda: queries.rows("run", Choice(middle, middle, sort="reward", limit=20)),
            step_scan,
        ),
        ("20 lowest rewards of the run", lambda: queries.rows("run", Choice(sort="reward", limit=20)), extreme_scan),
        ("20 longest of the run", lambda: queries.rows("run", Choice(sort="length", descending=True)), extreme_scan),
        (
            "20 most repetitive of the run",
            lambda: queries.rows("run", Choice(sort="repetition", descending=True)),
            None,
        ),
        (
            "20 lowest of a tenth of the run",
            lambda: queries.rows("run", Choice(middle, middle + steps // 10, sort="reward")),
            extreme_scan,
        ),
        ("which steps there are", lambda: queries.steps("run", None, None, 1000), None),
        ("a step at a glance", lambda: queries.summary("run", middle), step_scan),
    ]
    print("| question | first, s | then, s | JSONL scan, s | scan / then |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, question, scanned in questions:
        first, then, answer = timed(question, repeats)
        assert answer
        shown = "| |" if scanned is None else f"| {scanned:.1f} | {scanned / then:,.0f} |"
        print(f"| {name} | {first:.3f} | {then:.3f} {shown}")
    step = queries.rows("run", Choice(middle, middle, limit=rows, text=2**20))
    assert [row["response"] for row in step] == [row["response"] for row in by_scan]
    low = queries.rows("run", Choice(sort="reward", limit=20, text=2**20))
    assert [row["reward"] for row in low] == [row["reward"] for row in worst]
    queries.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--step-rows", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    steps = arguments.rows // arguments.step_rows
    with tempfile.TemporaryDirectory() as folder:
        root, plain = Path(folder) / "rollouts", Path(folder) / "rollouts.jsonl"
        root.mkdir()
        fill(root, plain, steps, arguments.step_rows)
        print()
        ask(root, plain, steps, arguments.step_rows, arguments.repeats)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print()
        print(f"Peak memory of the process, writing and asking: {peak:,.0f} MiB.")


if __name__ == "__main__":
    main()
