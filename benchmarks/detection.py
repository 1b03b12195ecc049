"""Detection quality on labelled runs: what pages, what warns, how late, and what should have kept quiet.

    python benchmarks/detection.py [--corpus DIR] [--runs DIR] [--slices N] [--only TEXT] [--verbose]

A page is an incident that is (or becomes) critical. Rates:

    healthy runs          pages per run, runs paged, warnings per 1,000 rows (a labelled transient excuses a warning
                          within 10 steps of it, never a page)
    dynamic failures      onset later than the third row: caught by a page, or by any alert, from 2 rows before the
                          onset to the end of the labelled events; delay in rows; alerts before that are false
    wrong from the start  onset within the first three rows: caught by any alert

Many runs of the corpus share a repository, so healthy runs are counted by repository as well. With --slices each
healthy run is also cut at N drawn rows and thinned, as a run that nobody has looked at: does it stay quiet?

Beside the engine stand peers with their default settings, where they are installed, and dummies that know nothing:
without them no rate means much.

    pip install rlwatch==0.5.1 rldoctor==0.2.0
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import logging
import math
import random
import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tocsin import readers
from tocsin_detectors.alerts import AlertEvent, IncidentEvent, Severity
from tocsin_detectors.catalogue import Catalogue, guess_framework
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import RunConfig, StepVector

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class LabelledRun:
    """A run with what somebody saw in it by eye."""

    name: str
    label: str
    vectors: list[StepVector]
    config: RunConfig = field(default_factory=RunConfig)
    events: list[dict[str, object]] = field(default_factory=list)
    fragment: bool = False
    repository: str = ""

    @property
    def rows(self) -> dict[int, int]:
        return {step: row for row, step in enumerate(dict.fromkeys(vector.step for vector in self.vectors))}


@dataclass
class Said:
    """What a detector said: rows and steps of pages and of warnings, with a name."""

    pages: list[tuple[int, str]] = field(default_factory=list)
    warnings: list[tuple[int, str]] = field(default_factory=list)


def tocsin(run: LabelledRun) -> Said:
    engine = Engine(run.name)
    engine.feed(run.config)
    said = Said()
    paged: set[str] = set()
    for vector in run.vectors:
        for event in engine.feed(vector):
            if isinstance(event, IncidentEvent):
                if event.incident.severity is Severity.CRITICAL and event.incident.id not in paged:
                    paged.add(event.incident.id)
                    said.pages.append((event.step, event.incident.rule))
            elif isinstance(event, AlertEvent) and event.transition == "fired" and event.alert.severity.rank >= 1:
                said.warnings.append((event.step, f"{event.alert.rule}:{event.alert.metric}"))
    return said


def never(run: LabelledRun) -> Said:
    del run
    return Said()


def every_100_rows(run: LabelledRun) -> Said:
    steps = list(run.rows)[99::100]
    return Said(pages=[(step, "dummy") for step in steps], warnings=[(step, "dummy") for step in steps])


def rolling_z(run: LabelledRun) -> Said:
    """Mean +- 3 sigma of the last 50 values of each main metric: what most people would write first."""
    wanted = ("kl", "entropy", "reward", "score/mean", "grad_norm", "response_length/mean", "mean_length", "pg_loss")
    windows: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=50))
    said = Said()
    for vector in run.vectors:
        for name, value in vector.metrics.items():
            if not name.endswith(wanted) or not math.isfinite(value):
                continue
            window = windows[name]
            if len(window) >= 10:
                mean, sigma = statistics.fmean(window), statistics.pstdev(window)
                if sigma > 0 and abs(value - mean) > 3 * sigma:
                    said.warnings.append((vector.step, name))
                    if not said.pages or vector.step - said.pages[-1][0] > 20:
                        said.pages.append((vector.step, name))
            window.append(value)
    return said


# What rlwatch takes, by canonical names: the first that a run reports.
RLWATCH_INPUTS = {
    "entropy": ("actor/entropy",),
    "kl_divergence": ("actor/kl_loss", "actor/reward_kl_penalty", "actor/reward_kl_sum"),
    "reward_mean": ("critic/score/mean", "critic/rewards/mean"),
    "reward_std": ("critic/rewards/std",),
    "loss": ("actor/pg_loss",),
    "grad_norm": ("actor/grad_norm",),
}


def rlwatch(run: LabelledRun) -> Said:
    """The peer's suite, with its default thresholds and its default cooldown between alerts of one kind.

    It gets its inputs through our catalogue: under their own names it would miss most of them.
    """
    config = importlib.import_module("rlwatch.config").RLWatchConfig()
    suite = importlib.import_module("rlwatch.detectors").DetectorSuite(config)
    catalogue, names = Catalogue(), {name for vector in run.vectors for name in vector.metrics}
    framework = guess_framework(names, run.config.framework)
    owners = {catalogue.resolve(name, framework).canonical: name for name in sorted(names)}
    inputs = {
        field: owner
        for field, wanted in RLWATCH_INPUTS.items()
        if (owner := next((owners[name] for name in wanted if name in owners), None)) is not None
    }
    said, last = Said(), dict[tuple[str, str], int]()
    for vector in run.vectors:
        values = {field: vector.metrics[name] for field, name in inputs.items() if name in vector.metrics}
        for alert in suite.check_step(vector.step, **values):
            key = (alert.detector, alert.severity)
            if key in last and vector.step - last[key] < config.alerts.cooldown_steps:
                continue
            last[key] = vector.step
            (said.pages if alert.severity == "critical" else said.warnings).append((vector.step, alert.detector))
    return said


RL_DOCTOR_ROWS = 450  # it reads the whole history at every look: longer runs take it minutes


def rl_doctor(run: LabelledRun) -> Said | None:
    """The peer's live monitor with its default settings; None for a run that is too long for it."""
    if len(run.vectors) > RL_DOCTOR_ROWS:
        return None
    critical = importlib.import_module("rl_doctor.detectors").Severity.CRITICAL
    monitor = importlib.import_module("rl_doctor.live").LiveMonitor(on_finding=lambda _finding: None)
    said = Said()
    for vector in run.vectors:
        for finding in monitor.log(vector.metrics, step=vector.step):
            heard = said.pages if finding.severity >= critical else said.warnings
            heard.append((vector.step, finding.detector))
    return said


DETECTORS: dict[str, Callable[[LabelledRun], Said | None]] = {
    "tocsin": tocsin,
    "rlwatch": rlwatch,
    "rl_doctor": rl_doctor,
    "never": never,
    "every 100 rows": every_100_rows,
    "rolling z > 3": rolling_z,
}


DUMMIES = ("never", "every 100 rows", "rolling z > 3")
PEERS = {"rlwatch": "rlwatch==0.5.1", "rl_doctor": "rldoctor==0.2.0"}


@dataclass
class Tally:
    """What a detector said of all runs, counted."""

    healthy: int = 0
    rows: int = 0
    paged: int = 0
    pages: int = 0
    warnings: int = 0
    repositories: dict[str, bool] = field(default_factory=dict)
    dynamic: int = 0
    by_page: int = 0
    by_any: int = 0
    false_before: int = 0
    start: int = 0
    start_any: int = 0
    delays: list[int] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        return {
            "healthy": self.healthy,
            "pages/run": round(self.pages / max(self.healthy, 1), 3),
            "paged": self.paged,
            "repos": f"{sum(self.repositories.values())} of {len(self.repositories)}",
            "warn/1000": round(1000 * self.warnings / max(self.rows, 1), 2),
            "dynamic": self.dynamic,
            "by page": self.by_page,
            "by any": self.by_any,
            "delay": statistics.median(self.delays) if self.delays else None,
            "false before": self.false_before,
            "from start": self.start,
            "start any": self.start_any,
        }


def score(
    runs: Iterable[LabelledRun], detector: Callable[[LabelledRun], Said | None], *, verbose: bool
) -> dict[str, object]:
    tally = Tally()
    for run in runs:
        if run.label not in ("healthy", "anomalous") or run.fragment:
            continue
        said = detector(run)
        if said is None:
            continue
        line = score_healthy(run, said, tally) if run.label == "healthy" else score_anomalous(run, said, tally)
        if verbose and line:
            print(line)
    return tally.row()


def score_healthy(run: LabelledRun, said: Said, tally: Tally) -> str:
    """Count a healthy run; a line about what should not have been said, if anything was."""
    loud = [warning for warning in said.warnings if not _excused(run, warning[0])]
    tally.healthy += 1
    tally.rows += len(run.rows)
    tally.pages += len(said.pages)
    tally.paged += bool(said.pages)
    tally.repositories[run.repository] = tally.repositories.get(run.repository, False) or bool(said.pages)
    tally.warnings += len(loud)
    if not said.pages and not loud:
        return ""
    return f"  healthy   {run.name:52s} {len(run.rows):5d} rows  pages {said.pages}  warnings {loud[:12]}"


def score_anomalous(run: LabelledRun, said: Said, tally: Tally) -> str:
    """Count a run that something happened to; a line about what was said of it, and when."""
    rows = run.rows
    events = [event for event in run.events if event["severity"] != "transient"]
    onset_step = min(int(str(event["step_from"])) for event in events)
    onset = _row(rows, onset_step)
    first, last = onset - 2, _row(rows, max(int(str(event["step_to"])) for event in events))
    hits_page = [_row(rows, step) for step, _ in said.pages if first <= _row(rows, step) <= last]
    hits_any = [_row(rows, step) for step, _ in [*said.pages, *said.warnings] if first <= _row(rows, step) <= last]
    if onset < 3:
        kind = "start"
        tally.start += 1
        tally.start_any += bool(hits_any)
    else:
        kind = "dynamic"
        tally.dynamic += 1
        tally.by_page += bool(hits_page)
        tally.by_any += bool(hits_any)
        tally.false_before += sum(_row(rows, step) < first for step, _ in said.warnings)
        if hits_any:
            tally.delays.append(min(hits_any) - onset)
    told = f"page {min(hits_page) - onset:+d}" if hits_page else "no page"
    told += f", alert {min(hits_any) - onset:+d}" if hits_any else ", MISSED"
    heard = f"pages {said.pages} {said.warnings[:8]}"
    return f"  {kind:9s} {run.name:52s} onset row {onset} step {onset_step}: {told}; {heard}"


def _row(rows: dict[int, int], step: int) -> int:
    """The row of a step, or of the last logged one before it."""
    return rows[step] if step in rows else max((row for at, row in rows.items() if at <= step), default=0)


def _excused(run: LabelledRun, step: int) -> bool:
    return any(
        event["severity"] == "transient"
        and int(str(event["step_from"])) - 10 <= step <= int(str(event["step_to"])) + 10
        for event in run.events
    )


def load_corpus(folder: Path) -> list[LabelledRun]:
    """Runs in the format of an index.json with one JSONL file per entry."""
    runs = []
    for entry in json.loads((folder / "index.json").read_text()):
        path = folder / entry.get("file", f"{entry['id'] if 'id' in entry else entry['name']}.jsonl.gz")
        vectors = [StepVector(vector.step, vector.metrics, vector.time) for vector in readers.read(path)]
        runs.append(
            LabelledRun(
                name=entry.get("id") or entry["name"],
                label=entry["label"],
                vectors=vectors,
                config=RunConfig(framework=None),
                events=entry["events"],
                fragment=entry.get("fragment", False),
                repository=entry.get("source_repo", ""),
            )
        )
    return runs


def load_recorded(folder: Path) -> list[LabelledRun]:
    """The project's own recorded runs: their collapse begins at a known step and lasts."""
    runs = []
    for entry in json.loads((folder / "index.json").read_text()):
        vectors = [
            StepVector(vector.step, vector.metrics, vector.time) for vector in readers.read(folder / entry["file"])
        ]
        onset = entry["onset_step"]
        events = [] if onset is None else [{"step_from": onset, "step_to": vectors[-1].step, "severity": "lasting"}]
        label = "healthy" if entry["label"] == "healthy" else "anomalous"
        config = RunConfig(**entry["config"])
        runs.append(LabelledRun(entry["name"], label, vectors, config, events, repository="recorded"))
    return runs


THINNINGS = (1, 1, 1, 2, 3, 5)  # every so many rows of a slice are kept
SLICE = 400  # rows of a slice


def slices(runs: Iterable[LabelledRun], count: int) -> list[LabelledRun]:
    """Parts of healthy runs that begin anywhere in their first half, some of them with only every k-th row."""
    found = []
    for run in runs:
        if run.label != "healthy" or run.fragment:
            continue
        rng = random.Random(run.name)  # noqa: S311 - places, not secrets
        for number in range(count):
            start, thinning = rng.randint(0, max(len(run.vectors) // 2, 1)), THINNINGS[number % len(THINNINGS)]
            vectors = run.vectors[start::thinning][:SLICE]
            if len(vectors) >= 20:
                found.append(replace(run, name=f"{run.name}[{start}::{thinning}]", vectors=vectors))
    return found


def show(title: str, runs: list[LabelledRun], *, verbose: bool) -> None:
    print(f"\n{title}: {len(runs)} runs")
    rows = {}
    for name, detector in DETECTORS.items():
        if name in PEERS and importlib.util.find_spec(name) is None:
            print(f"{name}: skipped, not installed (pip install {PEERS[name]})")
            continue
        if verbose:
            print(f"  {name}")
        rows[name] = score(runs, detector, verbose=verbose and name not in DUMMIES)
    columns = list(next(iter(rows.values())))
    print(f"{'detector':16s}" + "".join(f"{column:>13s}" for column in columns))
    for name, row in rows.items():
        print(f"{name:16s}" + "".join(f"{row[column]!s:>13s}" for column in columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="folder with an index.json"
    )
    parser.add_argument(
        "--runs", type=Path, default=ROOT / "tests" / "data" / "runs", help="the project's recorded runs"
    )
    parser.add_argument("--verbose", action="store_true", help="name every hit, miss and false alarm")
    parser.add_argument("--only", default="", help="tables whose title contains this")
    parser.add_argument("--slices", type=int, default=0, help="parts cut from each healthy run (6 is a good number)")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # the peers write theirs there
    labelled = []
    if (arguments.corpus / "index.json").exists():
        labelled.append(("corpus", load_corpus(arguments.corpus)))
    else:
        print(f"no corpus at {arguments.corpus}: skipped (give --corpus)")
    if (arguments.runs / "index.json").exists():
        labelled.append(("recorded runs", load_recorded(arguments.runs)))
    if arguments.slices:
        everything = [run for _, runs in labelled for run in runs]
        labelled.append(("slices of healthy runs", slices(everything, arguments.slices)))
    for title, runs in labelled:
        if arguments.only in title:
            show(title, runs, verbose=arguments.verbose)


if __name__ == "__main__":
    main()
