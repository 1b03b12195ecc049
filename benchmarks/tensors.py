"""What the tensor metrics cost, as multiples of reading their input once.

    python benchmarks/tensors.py [--sizes 64x1024,256x4096] [--repeat 7]

Half of the slots are valid (lengths uniform); 1 token in 100 has a log-ratio of standard deviation 1, the others 0.01.
Two yardsticks, measured beside the metrics in the same process:

    sum     torch.sum of the three inputs as they are (torch sums booleans slowly)
    strict  9 bytes per slot at the rate at which torch sums float32

Extra memory is by how much the resident size of a process of its own rises at most while it measures once (Linux);
tensors that are returned count.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.measure import measure
from tocsin_detectors.rollout_corr.options import Options

YARDSTICK_REPEAT = 30  # torch sums with threads, whose stalls on a busy machine would flatter everything else
SIZES = ((64, 1024), (256, 4096), (512, 8192), (1024, 16384))
REJECTION = {"rollout_rs": "token_k1,seq_mean_k3,seq_max_k2", "rollout_rs_threshold": "0.5_2.0,0.05,0.3"}
WEIGHTS = {"rollout_is": "token", "rollout_is_threshold": 2.0}
TASKS = {
    "off-policy": Options(metrics=("off_policy",)),
    "+ token IS": Options(metrics=("off_policy", "is"), **WEIGHTS),
    "+ 3 rejections": Options(metrics=("off_policy", "is", "rs"), **WEIGHTS, **REJECTION),
    "+ weights, mask": Options(
        metrics=("off_policy", "is", "rs"), **WEIGHTS, **REJECTION, return_weights=True, return_mask=True
    ),
}


def batch(rows: int, width: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    lengths = torch.linspace(1, width, rows).round().long()[torch.randperm(rows, generator=generator)]
    mask = torch.arange(width) < lengths[:, None]
    old = torch.empty(rows, width).exponential_(generator=generator).neg_()
    noise = torch.randn(rows, width, generator=generator)
    noise *= torch.where(torch.rand(rows, width, generator=generator) < 0.01, 1.0, 0.01)
    return {"old_log_probs": old, "rollout_log_probs": old + noise, "response_mask": mask}


def ragged(padded: dict[str, Tensor]) -> dict[str, Tensor]:
    mask = padded["response_mask"]
    flat = {name: padded[name][mask] for name in ("old_log_probs", "rollout_log_probs")}
    return flat | {"response_lengths": mask.sum(1)}


def seconds(work: Callable[[], object], repeat: int) -> tuple[float, float]:
    """Least and median time."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times), statistics.median(times)


def extra_mib(rows: int, width: int, task: str, layout: str) -> float:
    """By how much the resident size of a process rises, at most, while it does this once."""
    command = [sys.executable, __file__, "--extra", f"{rows}x{width}", layout, task]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_extra(size: str, layout: str, task: str) -> None:
    rows, width = (int(part) for part in size.split("x"))
    for options in TASKS.values():
        measure(batch(4, 64), options)  # what is loaded at first use is no cost of a batch
    tensors = batch(rows, width)
    if layout == "ragged":
        tensors = ragged(tensors)
    Path("/proc/self/clear_refs").write_text("5")  # Linux: the highest resident size so far becomes the present one
    before = resident_mib("VmRSS")
    measured = measure(tensors, TASKS[task])
    print(resident_mib("VmHWM") - before)
    assert measured.metrics


def resident_mib(name: str) -> float:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return float(status[name].split()[0]) / 1024


def report(rows: int, width: int, repeat: int, *, memory: bool) -> None:
    tensors = batch(rows, width)
    old, rollout, mask = tensors.values()
    slots = rows * width
    as_they_are = seconds(lambda: (old.sum(), rollout.sum(), mask.sum()), YARDSTICK_REPEAT)[0]
    strict = seconds(old.sum, YARDSTICK_REPEAT)[0] / 4 * 9
    print(f"\n{rows}x{width}, {int(mask.sum()):,} valid tokens, input {9 * slots / 2**20:.1f} MiB")
    print(f"yardsticks: sum {as_they_are * 1e3:.3f} ms, strict {strict * 1e3:.3f} ms")
    print(f"{'layout':8}{'':18}{'ms':>9}{'median':>9}{'x sum':>8}{'x strict':>10}{'extra MiB':>11}")
    for layout, data in (("padded", tensors), ("ragged", ragged(tensors))):
        for task, options in TASKS.items():
            best, middle = seconds(lambda data=data, options=options: measure(data, options), repeat)
            extra = f"{extra_mib(rows, width, task, layout):11.1f}" if memory else ""
            print(
                f"{layout:8}{task:18}{best * 1e3:9.3f}{middle * 1e3:9.3f}"
                f"{best / as_they_are:8.1f}{best / strict:10.1f}{extra}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(f"{rows}x{width}" for rows, width in SIZES))
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--extra", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.extra:
        print_extra(*arguments.extra)
        return
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} threads; best of {arguments.repeat} after one to warm up")
    for size in arguments.sizes.split(","):
        rows, width = (int(part) for part in size.split("x"))
        report(rows, width, arguments.repeat, memory=not arguments.no_memory)


if __name__ == "__main__":
    main()
