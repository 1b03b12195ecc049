"""Describes recorded runs: when and where a sabotage shows, the entries of `index.json`, a table to look at."""

import json
import math
from pathlib import Path
from statistics import median
from typing import Any

from recording_runs import SABOTAGES, RunSpec

INDEX = "index.json"
REFERENCE_ROWS = 40  # logged values right before the sabotage: what the metric does when healthy
MARGIN = 0.5  # of the reference's range, added on both sides
LEAST_RANGE = 0.1  # what a flatter reference counts as: one truncated completion after none is no sign
PERSISTENCE = (4, 5)  # so many of so many consecutive values, the first one included, must be out of the range
SHOWN_WITHIN = 40  # steps
BOOKKEEPING = {"learning_rate", "lr", "num_tokens", "step_time", "epoch", "eps", "episode"}  # settings and counters

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def number(value: Any) -> float:
    """A recorded value as a number; null and "NaN" are NaN."""
    return math.nan if value is None else float(value)


def first_step_out(rows: list[Row], metric: str, step: int) -> int | None:
    """First step from `step` on at which the metric leaves its range before `step`, and stays out.

    Out means not finite, or beyond the least and greatest of the last `REFERENCE_ROWS` values before `step` by more
    than `MARGIN` of their range, on a logarithmic scale if all of them are positive; to stay out means `PERSISTENCE`.
    Steps that don't log the metric are passed over. A healthy metric drifts out of any range in the end, so what first
    shows more than `SHOWN_WITHIN` steps later is left out.
    """
    values = [(row["step"], number(row["metrics"][metric])) for row in rows if metric in row["metrics"]]
    reference = [value for at, value in values if at < step][-REFERENCE_ROWS:]
    if len(reference) < REFERENCE_ROWS // 4 or not all(math.isfinite(value) for value in reference):
        return None
    scale = _log if min(reference) > 0 else float
    least, greatest = scale(min(reference)), scale(max(reference))
    slack = MARGIN * max(greatest - least, LEAST_RANGE)
    later = [(at, not least - slack <= scale(value) <= greatest + slack) for at, value in values if at >= step]
    enough, of = PERSISTENCE
    for index, (at, out) in enumerate(later):
        if out and at <= step + SHOWN_WITHIN and sum(flag for _, flag in later[index : index + of]) >= enough:
            return at
    return None


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf if value <= 0 else math.nan


def shown_in(rows: list[Row], step: int) -> dict[str, int]:
    """Each metric that shows a sabotage made at `step`, with the first step at which it does; earliest first."""
    metrics = {name for row in rows for name in row["metrics"]} - BOOKKEEPING
    found = {name: at for name in metrics if (at := first_step_out(rows, name, step)) is not None}
    return dict(sorted(found.items(), key=lambda item: (item[1], item[0])))


def describe(spec: RunSpec, rows: list[Row], versions: dict[str, str]) -> dict[str, Any]:
    """The run's entry in `index.json`."""
    shown = {} if spec.sabotage_step is None else shown_in(rows, spec.sabotage_step)
    return {
        "name": spec.name,
        "file": f"{spec.name}.jsonl",
        "trainer": versions,
        "algorithm": spec.algorithm,
        "seed": spec.seed,
        "learning_rate": spec.learning_rate,
        "group_size": spec.group_size,
        "beta": spec.beta,
        "temperature": spec.temperature,
        "steps": rows[-1]["step"],
        "config": {
            "algorithm": spec.algorithm,
            "framework": "trl",
            "group_size": spec.group_size,
            "temperature": spec.temperature,
        },
        "label": "healthy" if spec.sabotage is None else "collapse",
        "sabotage": None if spec.sabotage is None else SABOTAGES[spec.sabotage],
        "sabotage_step": spec.sabotage_step,
        "onset_step": min(shown.values(), default=None),
        "shows_in": list(shown),
        "note": spec.note,
    }


def table(spec: RunSpec, rows: list[Row], block: int = 20) -> str:
    """Medians of the telling metrics in blocks of steps, and when each metric first shows the sabotage."""
    telling = {
        "grpo": ("reward", "reward_std", "entropy", "kl", "grad_norm", "loss", "completions/mean_length"),
        "ppo": ("objective/scores", "policy/entropy_avg", "objective/kl", "loss/value_avg", "policy/approxkl_avg"),
    }[spec.algorithm]
    lines = [spec.name, "steps".rjust(9) + "".join(name.rpartition("/")[2].rjust(13) for name in telling)]
    for start in range(0, len(rows), block):
        part = rows[start : start + block]
        cells = []
        for name in telling:
            values = [number(row["metrics"][name]) for row in part if name in row["metrics"]]
            finite = [value for value in values if math.isfinite(value)]
            cells.append(f"{median(finite):13.4g}" if finite else "NaN".rjust(13))
        lines.append(f"{part[0]['step']:4}-{part[-1]['step']:<4}" + "".join(cells))
    if spec.sabotage_step is not None:
        shown = ", ".join(f"{name} @{at}" for name, at in shown_in(rows, spec.sabotage_step).items())
        lines.append(f"sabotaged at step {spec.sabotage_step}; shows in {shown or 'nothing'}")
    return "\n".join(lines)


def update_index(folder: Path, entry: dict[str, Any], order: list[str]) -> None:
    """Replaces or adds the given entry; runs that were not recorded this time keep theirs."""
    path = folder / INDEX
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    by_name = {item["name"]: item for item in [*known, entry]}
    chosen = [by_name[name] for name in order if name in by_name]
    path.write_text(json.dumps(chosen, indent=1, allow_nan=False) + "\n", encoding="utf-8")
