"""What one step vector of 100 metrics costs in the engine, beside rlwatch's suite on its five metrics, in one run.

    pip install rlwatch==0.5.1
    python benchmarks/engine.py [--rows 2000] [--rounds 7]

Both see the same healthy run with noise, row by row, alternately in rounds; the figure is the median over the rounds of
the ratio within a round, so that a machine that changes its pace changes both.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable

from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import StepVector
from tocsin_detectors.rules import RuleSet, shipped_rules

# What verl's PPO trainer logs in one step: the metrics that rules watch, and the rest of the hundred.
WATCHED = {
    "actor/kl_loss": 0.05,
    "actor/entropy": 1.5,
    "actor/pg_loss": 0.02,
    "actor/grad_norm": 0.8,
    "actor/ppo_kl": 0.002,
    "actor/pg_clipfrac": 0.02,
    "actor/pg_clipfrac_lower": 0.001,
    "critic/score/mean": 0.6,
    "critic/rewards/mean": 0.55,
    "critic/advantages/mean": 0.01,
    "critic/advantages/max": 2.4,
    "critic/advantages/min": -2.4,
    "critic/vf_loss": 0.1,
    "critic/grad_norm": 1.2,
    "critic/vf_explained_var": 0.7,
    "response_length/mean": 900.0,
    "response_length/clip_ratio": 0.03,
    "rollout_corr/kl": 0.0015,
    "rollout_corr/k3_kl": 0.0014,
    "training/rollout_probs_diff_mean": 0.003,
}
REST = [f"timing_s/stage_{number}" for number in range(40)] + [
    f"val-aux/source_{number}/reward/mean@8" for number in range(40)
]


def rows(count: int) -> list[StepVector]:
    rng = random.Random(0)  # noqa: S311 - noise, not secrets
    vectors = []
    for step in range(1, count + 1):
        metrics = {name: level * math.exp(rng.gauss(0, 0.1)) for name, level in WATCHED.items()}
        metrics |= {name: 10 * math.exp(rng.gauss(0, 0.1)) for name in REST}
        vectors.append(StepVector(step, metrics, 1.7e9 + step))
    return vectors


# The rules that watch for a collapse and for broken data, without those of throughput, mismatch details and the like.
CORE = RuleSet(
    rule
    for rule in shipped_rules()
    if rule.name
    in {
        "kl_collapse", "grad_norm_spike", "actor_loss_jump", "critic_loss_above_plateau", "grpo_advantage_mean_nonzero",
        "ratio_variance_growing", "reward_collapse", "entropy_collapse", "non_finite", "step_went_back",
        "model_collapse",
    }
)  # fmt: skip


def tocsin_us(vectors: list[StepVector], rules: RuleSet | None = None) -> float:
    engine = Engine("benchmark", rules)
    begin = time.perf_counter()
    for vector in vectors:
        engine.feed(vector)
    return (time.perf_counter() - begin) / len(vectors) * 1e6


def rlwatch_us(vectors: list[StepVector]) -> float:
    from rlwatch.config import RLWatchConfig  # noqa: PLC0415 - a peer that only this benchmark needs
    from rlwatch.detectors import DetectorSuite  # noqa: PLC0415 - same

    suite = DetectorSuite(RLWatchConfig())
    table = [
        (
            vector.step,
            {
                "entropy": vector.metrics["actor/entropy"],
                "kl_divergence": vector.metrics["actor/kl_loss"],
                "reward_mean": vector.metrics["critic/score/mean"],
                "advantage_std": vector.metrics["critic/advantages/max"],
                "grad_norm": vector.metrics["actor/grad_norm"],
            },
        )
        for vector in vectors
    ]
    begin = time.perf_counter()
    for step, values in table:
        suite.check_step(step, **values)
    return (time.perf_counter() - begin) / len(table) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    vectors = rows(arguments.rows)
    sides: dict[str, Callable[[list[StepVector]], float]] = {
        "core": lambda rows: tocsin_us(rows, CORE),
        "all": tocsin_us,
        "rlwatch": rlwatch_us,
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, measure in sides.items():
            times[name].append(measure(vectors))
    engine = Engine("benchmark")
    for vector in vectors:
        engine.feed(vector)
    begin = time.perf_counter()
    size = len(json.dumps(engine.snapshot()))
    snapshot_ms = (time.perf_counter() - begin) * 1e3
    print(f"{arguments.rounds} rounds of {arguments.rows} rows, {len(WATCHED) + len(REST)} metrics a row")
    print(f"rlwatch    {statistics.median(times['rlwatch']):8.1f} us a row (5 metrics)")
    for name, count, aim in (("core", len(CORE), 4), ("all", len(engine.rules), 6)):
        ratios = [ours / theirs for ours, theirs in zip(times[name], times["rlwatch"], strict=True)]
        print(
            f"{name:10s} {statistics.median(times[name]):8.1f} us a row (100 metrics, {count} rules): "
            f"{statistics.median(ratios):.2f} times rlwatch (min {min(ratios):.2f}, max {max(ratios):.2f}); "
            f"aim: at most {aim}"
        )
    print(f"state      {size / 1024:8.1f} KiB as JSON, made in {snapshot_ms:.1f} ms")


if __name__ == "__main__":
    main()
