"""Synthetic faults in real healthy runs: is each caught, in time, under the right name and no louder than it deserves?

    python benchmarks/faults.py [--corpus DIR] [--runs DIR] [--rounds 2] [--seed 0] [--only TEXT]
                                [--summary | --verbose]

Each kind of fault (`fault_kinds.py`) is injected into each healthy run that reports what it needs, at rows drawn by the
seed, away from anything that the labels call unusual. The engine sees the same rows with and without the fault: what
it says of both is not counted. Columns:

    cases    faults injected; unfit: the run couldn't show this fault (metric absent, run too short, hidden in noise)
    caught   any new alert within the delay allowed;  right: one of the rules that name this fault
    delay    median of rows from the first changed row to the right alert
    tell     how loud it should be;  paged: how many cases paged;  silence (quiet) is right if nothing warns or pages
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from detection import ROOT, LabelledRun, load_corpus, load_recorded
from fault_kinds import FAULTS, Fault
from fault_window import Unfit, Window
from tocsin_detectors.alerts import AlertEvent, IncidentEvent, Severity
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import StepVector

HISTORY = 120  # healthy rows before the fault, at most
CLEAR = 40  # rows around the fault that no labelled event may touch
MORE = 12  # rows judged beyond the delay, for what comes too late

Heard = tuple[int, str, str, int]  # row, rule, metric or incident, rank of the severity


@dataclass(frozen=True)
class Outcome:
    """What the engine made of one case.

    Attributes:
        run: whose rows these are.
        step: of the first changed row.
        fired: rows since the fault and rule of each new alert that is a warning or more, or right.
        delay: rows to the first right alert within the time allowed; None if there was none.
        caught: any of ``fired`` came within the time allowed.
        pages: new critical incidents.
    """

    run: str
    step: int
    fired: tuple[tuple[int, str], ...]
    delay: int | None
    caught: bool
    pages: int

    def right(self, fault: Fault) -> bool:
        return not self.fired and not self.pages if fault.tell == "quiet" else self.delay is not None


def place(run: LabelledRun, fault: Fault, rng: random.Random) -> int:
    """A row for the fault, far from whatever is labelled.

    Raises:
        Unfit: there's none.
    """
    last = len(run.vectors) - fault.delay - 1
    if last < fault.before:
        raise Unfit("too short")
    for _ in range(8):
        at = rng.randint(fault.before, last)
        first_step = run.vectors[max(at - CLEAR, 0)].step
        last_step = run.vectors[min(at + fault.delay + MORE, len(run.vectors) - 1)].step
        if not any(
            int(str(event["step_from"])) <= last_step and int(str(event["step_to"])) >= first_step
            for event in run.events
        ):
            return at
    raise Unfit("something is labelled everywhere")


def merged(run: LabelledRun) -> LabelledRun:
    """One vector a step, so that rows are steps."""
    rows: dict[int, StepVector] = {}
    for vector in run.vectors:
        old = rows.get(vector.step)
        rows[vector.step] = vector if old is None else replace(old, metrics={**old.metrics, **vector.metrics})
    return replace(run, vectors=list(rows.values()))


def listen(engine: Engine, vectors: list[StepVector]) -> tuple[list[Heard], set[str]]:
    """Alerts and ids of critical incidents that these rows raise."""
    fired: list[Heard] = []
    pages: set[str] = set()
    for row, vector in enumerate(vectors):
        for event in engine.feed(vector):
            if isinstance(event, AlertEvent) and event.transition == "fired":
                fired.append((row, event.alert.rule, event.alert.metric, event.alert.severity.rank))
            elif isinstance(event, IncidentEvent):
                if event.incident.severity is Severity.CRITICAL and event.incident.state == "firing":
                    pages.add(event.incident.id)
                if event.incident.rule == "model_collapse":
                    fired.append((row, "model_collapse", event.incident.id, Severity.CRITICAL.rank))
    return fired, pages


def try_case(run: LabelledRun, fault: Fault, rng: random.Random) -> Outcome:
    """Inject the fault into the run once.

    Raises:
        Unfit: the run can't show it.
    """
    at = place(run, fault, rng)
    start = max(at - HISTORY, 0)
    stretch = run.vectors[start : at + fault.delay + MORE]
    healthy = Window.of(stretch, at - start, run.config.framework, rng)
    fault.prepare(healthy)
    faulty = healthy.copy()
    visible = fault.inject(faulty)
    if visible is not None:
        faulty.demand_visible(visible, healthy, fault.delay + 1)

    engine = Engine(run.name)
    engine.feed(replace(run.config, **fault.config))
    listen(engine, healthy.vectors[: healthy.at])
    before = {(alert.rule, alert.metric) for alert in engine.firing} | {(i.rule, i.id) for i in engine.incidents}
    old_pages = {incident.id for incident in engine.incidents if incident.severity is Severity.CRITICAL}
    twin = Engine.restore(run.name, engine.snapshot())
    told, _ = listen(twin, healthy.vectors[healthy.at :])
    expected = before | {(rule, metric) for _, rule, metric, _ in told}
    if any(rule in fault.right for rule, _ in expected):
        raise Unfit("the healthy run itself raises it")
    fired, pages = listen(engine, faulty.vectors[faulty.at :])
    new = [alert for alert in fired if alert[1:3] not in expected]
    heard = tuple((row, rule) for row, rule, _, rank in new if rank >= Severity.WARNING.rank or rule in fault.right)
    # A metric that comes at every other row only is given twice the rows.
    in_time = [(row, rule) for row, rule in heard if row <= fault.delay * (healthy.stride(visible) if visible else 1)]
    right = min((row for row, rule in in_time if rule in fault.right), default=None)
    return Outcome(run.name, run.vectors[at].step, heard, right, bool(in_time), len(pages - old_pages))


def cases(runs: list[LabelledRun], fault: Fault, rounds: int, seed: int) -> Iterator[Outcome | tuple[str, str]]:
    """Outcomes, and (run, reason) where the run is unfit."""
    for run in runs:
        for number in range(rounds):
            rng = random.Random(f"{seed}/{run.name}/{fault.name}/{number}")  # noqa: S311 - noise, not secrets
            try:
                yield try_case(run, fault, rng)
            except Unfit as reason:
                yield run.name, str(reason)


def report(fault: Fault, outcomes: list[Outcome], unfit: Counter[str], *, verbose: bool) -> None:
    right = [outcome for outcome in outcomes if outcome.right(fault)]
    delays = [outcome.delay for outcome in right if outcome.delay is not None]
    caught = right if fault.tell == "quiet" else [outcome for outcome in outcomes if outcome.caught]
    paged = sum(outcome.pages > 0 for outcome in outcomes)
    middle = f"{statistics.median(delays):.0f}" if delays else "-"
    print(
        f"{fault.name:36s}{len(outcomes):6d}{sum(unfit.values()):7d}{len(caught):8d}{len(right):7d}{middle:>7s}"
        f"{fault.tell:>7s}{paged:7d}"
    )
    if verbose:
        for outcome in outcomes:
            if not outcome.right(fault):
                heard = outcome.fired or "nothing"
                print(f"    missed    {outcome.run} step {outcome.step}: {heard} pages {outcome.pages}")
            elif fault.tell == "page" and not outcome.pages:
                print(f"    no page   {outcome.run} step {outcome.step}: {outcome.fired}")
        for reason, count in unfit.most_common():
            print(f"    unfit     {count:3d}  {reason}")


def healthy_runs(corpus: Path, recorded: Path) -> list[LabelledRun]:
    runs = load_corpus(corpus) if (corpus / "index.json").exists() else []
    runs += load_recorded(recorded) if (recorded / "index.json").exists() else []
    return [merged(run) for run in runs if run.label == "healthy" and not run.fragment]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="labelled runs, if there"
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "tests" / "data" / "runs", help="the recorded runs")
    parser.add_argument("--rounds", type=int, default=2, help="cases a run and kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds whose name contains this")
    detail = parser.add_mutually_exclusive_group()
    detail.add_argument("--summary", action="store_true", help="only the last line")
    detail.add_argument("--verbose", action="store_true", help="name every miss, and why runs were unfit")
    arguments = parser.parse_args()
    runs = healthy_runs(arguments.corpus, arguments.runs)
    print(f"{len(runs)} healthy runs, {arguments.rounds} rounds, seed {arguments.seed}")
    if not arguments.summary:
        print(f"{'fault':36s} cases  unfit  caught  right  delay   tell  paged")
    total = named = 0
    for fault in FAULTS:
        if arguments.only not in fault.name:
            continue
        results = list(cases(runs, fault, arguments.rounds, arguments.seed))
        outcomes = [result for result in results if isinstance(result, Outcome)]
        unfit = Counter(result[1] for result in results if isinstance(result, tuple))
        total += len(outcomes)
        named += sum(outcome.right(fault) for outcome in outcomes)
        if not arguments.summary:
            report(fault, outcomes, unfit, verbose=arguments.verbose)
    print(f"right: {named} of {total} ({named / max(total, 1):.1%})")


if __name__ == "__main__":
    main()
