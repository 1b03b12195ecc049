"""The roster: every metric that a run has sent, what it is called canonically, and who watches it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from tocsin_detectors.catalogue import Catalogue, Resolved, guess_framework
from tocsin_detectors.entries import RunConfig, StepVector, number_from_json, number_to_json
from tocsin_detectors.rules import Rule, RuleSet
from tocsin_detectors.rules.reward import TRAIN_REWARD
from tocsin_detectors.scale import Scale
from tocsin_detectors.series import Series
from tocsin_detectors.slot import Slot
from tocsin_detectors.watch import Watch

__all__ = ["MOST_SLOTS", "Roster"]

# Metrics that only a training actor reports: while critics train alone they are absent.
ACTOR_SIGNS = frozenset({"actor/pg_loss", "actor/grad_norm", "actor/pg_clipfrac", "actor/ppo_kl"})
CRITIC_SIGNS = frozenset({"critic/vf_loss", "critic/values/mean", "critic/vf_explained_var"})
MOST_SLOTS = 8192  # names that a run may have; hostile or careless trainers make a new one at each step
COMPUTED = "tocsin"  # in the place of a framework: the names are canonical
TELLING = 256  # names that are enough to tell the framework
REGULAR = 4  # looks in a row with a new value that make a metric a regular one
SILENT = 2  # looks in a row without that make a regular one missing


class Roster:
    """The slots of a run by the trainer's names.

    Args:
        rules: decides which metrics get a series.
    """

    def __init__(self, rules: RuleSet) -> None:
        self._all_rules = {rule.name: rule for rule in rules}
        self._rules = [(rule, _matcher(rule)) for rule in rules if rule.tests and rule.expression is None]
        self._expressions = [rule for rule in rules if rule.tests and rule.expression is not None]
        self._reserved = {rule.metrics[0] for rule in self._expressions}  # names of what is computed
        self._catalogue = Catalogue()
        self._slots: dict[str, Slot] = {}
        self._owners: dict[str, Slot] = {}  # by canonical name, the computed ones too
        self._computed: dict[str, tuple[Rule, Slot, tuple[tuple[str, Slot], ...]]] = {}  # by rule
        self._watched: list[Slot] | None = None
        self._looked_at = -1  # the step of the last look for missing metrics
        self.framework: str | None = None  # as told, or guessed from the names
        self._stated: str | None = None
        self.pretraining = False
        self._has_actor = False
        self.has_critic = False
        self.overflowed = ""  # the first name that found no room, until somebody has told of it

    def has_seen(self, name: str, step: int) -> bool:
        """Whether the metric had a value at ``step`` or later in this attempt."""
        slot = self._slots.get(name)
        return slot is not None and slot.last_step >= step

    def admit(self, vector: StepVector, config: RunConfig) -> list[tuple[Slot, float]]:
        """The vector's news: slots that somebody has to look at with their values in the catalogue's unit.

        Values that a slot has had at this step already are passed over, and those that mean "not measured". The order
        of the result doesn't depend on the order of the metrics in the vector.
        """
        step, slots = vector.step, self._slots
        if len(slots) < MOST_SLOTS and not vector.metrics.keys() <= slots.keys():
            self._enlist(vector, config.framework)
        updates: list[tuple[Slot, float]] = []
        for name, value in vector.metrics.items():
            slot = slots.get(name)
            if slot is None or slot.last_step >= step or (slot.absent and value in slot.absent):
                continue
            slot.last_step = step
            slot.value = value
            if slot.attended or not slot.low <= value <= slot.high:
                updates.append((slot, slot.resolved.apply(value)))
        updates.extend(self._compute(step, config))
        updates.sort(key=_by_canonical)
        return updates

    def open_attempt(self) -> None:
        """Steps begin anew, and so do the data-quality checks: the alerts of the last attempt are over."""
        self._looked_at = -1
        for slot in self._owners.values():
            slot.last_step = -1
            slot.silent = 0
            slot.checks.clear()
            slot.attend()

    def find_missing(self, step: int) -> Iterator[tuple[Slot, bool]]:
        """A look at which metrics have come since the last look: regular ones that haven't, or have again.

        Call it every so many steps; what comes more rarely than that is no regular metric.
        """
        for slot in self._slots.values():
            if slot.last_step > self._looked_at:
                if slot.silent >= SILENT and slot.regular >= REGULAR:
                    yield slot, False
                slot.regular = slot.regular + 1 if not slot.silent or slot.regular >= REGULAR else 1
                slot.silent = 0
            else:
                slot.silent += 1
                if slot.regular >= REGULAR and slot.silent == SILENT:
                    yield slot, True
                elif slot.regular < REGULAR:
                    slot.regular = 0
        self._looked_at = step

    def watched(self) -> list[Slot]:
        """The slots that rules watch, by canonical name."""
        if self._watched is None:
            self._watched = sorted((slot for slot in self._owners.values() if slot.watches), key=lambda s: s.canonical)
        return self._watched

    def watch(self, rule: str, metric: str) -> Watch:
        """The watch of a rule on a canonical metric.

        Raises:
            KeyError: there is none.
        """
        slot = self._owners[metric]
        return slot.checks.get(rule) or next(watch for watch in slot.watches if watch.rule.name == rule)

    def series(self, metric: str) -> Series | None:
        """The series of a canonical metric; None if the run doesn't report it or nothing watches it."""
        slot = self._owners.get(metric)
        return None if slot is None else slot.series

    def value(self, metric: str) -> float:
        """The last value of a canonical metric in its unit; NaN if the run doesn't report it."""
        slot = self._owners.get(metric)
        return math.nan if slot is None or slot.last_step < 0 else slot.resolved.apply(slot.value)

    def reward(self) -> Series | None:
        """The series of the training reward; None if the run reports none."""
        return next((series for name in TRAIN_REWARD if (series := self.series(name)) is not None), None)

    def _enlist(self, vector: StepVector, stated: str | None) -> None:
        metrics = vector.metrics
        framework = COMPUTED if vector.computed else self._tell_framework(metrics, stated)
        new = sorted(name for name in metrics if name not in self._slots)
        room = MOST_SLOTS - len(self._slots)
        if len(new) > room:
            self.overflowed = new[room]
            del new[room:]
        resolved = [(self._catalogue.resolve(name, framework), name) for name in new]
        # Where several names mean one metric, the catalogue's first choice gets it, whatever the order they came in.
        for answer, name in sorted(resolved, key=lambda pair: (pair[0].canonical, pair[0].priority, pair[1])):
            self._enlist_one(name, answer, framework)
        self._connect([self._slots[name].canonical for name in new])

    def _tell_framework(self, metrics: Mapping[str, float], stated: str | None) -> str | None:
        """Whose reading of new names is to be taken."""
        if stated != self._stated or (self.framework is None and len(self._slots) < TELLING):
            known = (name for name, slot in self._slots.items() if slot.framework != COMPUTED)
            self.framework, self._stated = guess_framework([*islice(known, TELLING), *metrics], stated), stated
        return self.framework

    def _enlist_one(self, name: str, resolved: Resolved, framework: str | None) -> None:
        own = resolved.canonical
        if own in self._owners or own in self._reserved:
            # A second voice on a metric that has one keeps its own name, and the data-quality checks.
            own, resolved = name, Resolved(name, None)
            while own in self._owners or own in self._reserved:  # the canonical name itself came after an alias of it
                own += " (again)"
        slot = Slot(name, own, resolved, framework)
        self._slots[name] = self._owners[own] = slot
        wanted = [
            rule for rule, matches in self._rules if matches(own) and not (rule.first_of and self._is_second(rule, own))
        ]
        slot.assign(wanted, _scale(resolved))

    def _is_second(self, rule: Rule, metric: str) -> bool:
        """Whether a metric that the rule prefers is there; if this one is preferred, the others' watches end."""
        rank = rule.metrics.index(metric)
        if any(other in self._owners for other in rule.metrics[:rank]):
            return True
        for other in rule.metrics[rank + 1 :]:
            if other in self._owners:
                self._owners[other].dismiss(rule)
        return False

    def _connect(self, new: Iterable[str]) -> None:
        """After new names: which phase this is, whose mean has a minimum and a maximum, what can be computed."""
        owners = self._owners
        self._watched = None
        self._has_actor = self._has_actor or not ACTOR_SIGNS.isdisjoint(owners)
        self.has_critic = self.has_critic or not CRITIC_SIGNS.isdisjoint(owners)
        self.pretraining = self.has_critic and not self._has_actor
        for name in new:
            stem, _, kind = name.rpartition("/")
            if kind in {"mean", "min", "max"} and (slot := owners.get(f"{stem}/mean")) is not None:
                slot.least, slot.most = owners.get(f"{stem}/min"), owners.get(f"{stem}/max")
                slot.attend()
        for rule in self._expressions:
            expression = rule.expression
            assert expression is not None  # noqa: S101 - that is what the list is of
            needed = [name for name in expression.names if not name.startswith("config.")]
            if rule.name in self._computed or any(name not in owners for name in needed):
                continue
            slot = Slot(expression.text, rule.metrics[0], Resolved(rule.metrics[0], None), None)
            slot.assign([rule], rule.scale or Scale())
            self._computed[rule.name] = (rule, slot, tuple((name, owners[name]) for name in needed))
        for _, slot, _ in self._computed.values():
            owners.setdefault(slot.canonical, slot)

    def _compute(self, step: int, config: RunConfig) -> Iterator[tuple[Slot, float]]:
        """The values of the expressions whose metrics have all come at this step."""
        for rule, slot, inputs in self._computed.values():
            if slot.last_step >= step or any(source.last_step != step for _, source in inputs):
                continue
            assert rule.expression is not None  # noqa: S101 - it is computed
            values = {name: source.resolved.apply(source.value) for name, source in inputs}
            for name in rule.expression.names:
                if name.startswith("config."):
                    setting = getattr(config, name.removeprefix("config."), None)
                    values[name] = setting if isinstance(setting, (int, float)) else math.nan
            value = rule.expression(values)
            slot.last_step = step
            if value - value == 0.0:
                slot.value = value
                yield slot, value

    def snapshot(self) -> dict[str, Any]:
        """The state as strict JSON."""
        return {
            "framework": self.framework,
            "stated": self._stated,
            "looked_at": self._looked_at,
            "slots": [slot.snapshot() for slot in self._slots.values()],
            "values": [number_to_json(slot.value) for slot in self._slots.values()],
            "computed": {name: slot.snapshot() for name, (_, slot, _) in sorted(self._computed.items())},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`snapshot` gave."""
        self.framework, self._stated = state["framework"], state["stated"]
        self._looked_at = state["looked_at"]
        for saved, value in zip(state["slots"], state["values"], strict=True):
            source, canonical, framework = saved[:3]
            resolved = self._catalogue.resolve(source, framework)
            if resolved.canonical != canonical:
                resolved = Resolved(source, None)
            slot = Slot(source, canonical, resolved, framework)
            slot.restore(saved, self._all_rules, _scale(resolved))
            slot.value = number_from_json(value)
            self._slots[source] = self._owners[canonical] = slot
        self._connect(tuple(self._owners))
        for name, saved in state["computed"].items():
            rule, slot, _ = self._computed[name]
            slot.restore(saved, self._all_rules, rule.scale or Scale())


def _scale(resolved: Resolved) -> Scale:
    return Scale() if resolved.metric is None else resolved.metric.scale


def _by_canonical(update: tuple[Slot, float]) -> str:
    return update[0].canonical


def _matcher(rule: Rule) -> Callable[[str], object]:
    """A predicate on canonical names: one of the rule's metrics, where a ``{placeholder}`` stands for any text."""
    if not any("{" in metric for metric in rule.metrics):
        return frozenset(rule.metrics).__contains__
    patterns = (
        "".join(".+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{\w+\})", metric))
        for metric in rule.metrics
    )
    return re.compile("|".join(patterns)).fullmatch
