"""The roster: every metric that a run has sent, what it is called canonically, and who watches it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tocsin_detectors.catalogue import Catalogue, Resolved, guess_framework
from tocsin_detectors.entries import StepVector
from tocsin_detectors.rules import Rule, RuleSet
from tocsin_detectors.rules.data import NON_FINITE
from tocsin_detectors.rules.reward import TRAIN_REWARD
from tocsin_detectors.scale import Scale
from tocsin_detectors.series import Series
from tocsin_detectors.watch import Watch

__all__ = ["Roster", "Slot"]

# Metrics that only a training actor reports: while critics train alone they are absent.
ACTOR_SIGNS = frozenset({"actor/pg_loss", "actor/grad_norm", "actor/pg_clipfrac", "actor/ppo_kl"})
CRITIC_SIGNS = frozenset({"critic/vf_loss", "critic/values/mean", "critic/vf_explained_var"})


class Slot:
    """One of the trainer's metric names, and what is made of it.

    Attributes:
        source: the trainer's name.
        canonical: the catalogue's name, or the trainer's where the catalogue knows none.
        framework: whose reading of the name was taken.
        series: None while no rule watches the metric.
        last_step: newest step at which it had a value in this attempt.
        nan_watch: exists from the first non-finite value until all is finite again.
    """

    __slots__ = (
        "canonical", "family", "framework", "last_step", "nan_watch", "resolved", "series", "skip_zero", "source",
        "watches",
    )  # fmt: skip

    def __init__(self, source: str, canonical: str, family: str, resolved: Resolved, framework: str | None) -> None:
        self.framework = framework
        self.source = source
        self.canonical = canonical
        self.family = family
        self.resolved = resolved
        self.series: Series | None = None
        self.watches: list[Watch] = []
        self.skip_zero = False
        self.last_step = -1
        self.nan_watch: Watch | None = None


class Roster:
    """The slots of a run by the trainer's names.

    Args:
        rules: decides which metrics get a series.
    """

    def __init__(self, rules: RuleSet) -> None:
        self._rules = [(rule, _matcher(rule)) for rule in rules]
        self._catalogue = Catalogue()
        self._slots: dict[str, Slot] = {}
        self._owners: dict[str, Slot] = {}  # by canonical name
        self._watched: list[Slot] | None = None
        self.framework: str | None = None  # as told, or guessed from the names
        self._stated: str | None = None
        self.pretraining = False
        self._has_actor = False
        self.has_critic = False

    def has_seen(self, name: str, step: int) -> bool:
        """Whether the metric had a value at ``step`` or later in this attempt."""
        slot = self._slots.get(name)
        return slot is not None and slot.last_step >= step

    def admit(self, vector: StepVector, framework: str | None) -> list[tuple[Slot, float]]:
        """The vector's news: slots that somebody has to look at with their values in the catalogue's unit.

        Values that a slot has had at this step already are passed over. The order of the result doesn't depend on the
        order of the metrics in the vector.
        """
        step, slots = vector.step, self._slots
        if any(name not in slots for name in vector.metrics):
            self._enlist(vector.metrics, framework)
        updates: list[tuple[Slot, float]] = []
        for name, value in vector.metrics.items():
            slot = slots[name]
            if slot.last_step >= step:
                continue
            slot.last_step = step
            if slot.series is not None or slot.nan_watch is not None or value - value != 0.0:
                updates.append((slot, slot.resolved.apply(value)))
        updates.sort(key=_by_canonical)
        return updates

    def open_attempt(self) -> None:
        """Steps begin anew, and so do the checks for finite values: the alerts of the last attempt are over."""
        for slot in self._slots.values():
            slot.last_step = -1
            slot.nan_watch = None

    def watched(self) -> list[Slot]:
        """The slots that rules watch, by canonical name."""
        if self._watched is None:
            self._watched = sorted((slot for slot in self._slots.values() if slot.watches), key=lambda s: s.canonical)
        return self._watched

    def watch(self, rule: str, metric: str) -> Watch:
        """The watch of a rule on a canonical metric.

        Raises:
            KeyError: there is none.
        """
        slot = self._owners[metric]
        if rule == NON_FINITE.name and slot.nan_watch is not None:
            return slot.nan_watch
        return next(watch for watch in slot.watches if watch.rule.name == rule)

    def reward(self) -> Series | None:
        """The series of the training reward; None if the run reports none."""
        for name in TRAIN_REWARD:
            if (slot := self._owners.get(name)) is not None and slot.series is not None:
                return slot.series
        return None

    def _enlist(self, metrics: Mapping[str, float], framework: str | None) -> None:
        if self.framework is None or framework != self._stated:
            self.framework, self._stated = guess_framework([*self._slots, *metrics], framework), framework
        new = [name for name in metrics if name not in self._slots]
        reading = self.framework
        resolved = [(self._catalogue.resolve(name, reading), name) for name in new]
        # Where several names mean one metric, the catalogue's first choice gets it, whatever the order they came in.
        for answer, name in sorted(resolved, key=lambda pair: (pair[0].canonical, pair[0].priority, pair[1])):
            self._enlist_one(name, answer, reading)
        self._note_phase()
        self._watched = None

    def _enlist_one(self, name: str, resolved: Resolved, framework: str | None) -> None:
        family = "" if resolved.metric is None else resolved.metric.family
        if resolved.canonical in self._owners:
            # A second voice on a metric that has one keeps its own name, and the data-quality checks.
            own = name
            while own in self._owners:  # the canonical name itself came after an alias of it
                own += " (again)"
            slot = Slot(name, own, family, Resolved(name, None), framework)
            self._owners[own] = slot
        else:
            slot = Slot(name, resolved.canonical, family, resolved, framework)
            self._owners[resolved.canonical] = slot
            self._assign(slot, resolved)
        self._slots[name] = slot

    def _assign(self, slot: Slot, resolved: Resolved) -> None:
        """Give the slot the watches of the rules that want its metric."""
        for rule, matches in self._rules:
            if not rule.tests or not matches(slot.canonical) or (rule.first_of and self._is_second(rule, slot)):
                continue
            slot.watches.append(Watch(rule))
        if slot.watches:
            slot.series = Series(resolved.metric.scale if resolved.metric is not None else Scale())
            slot.skip_zero = any(watch.rule.skip_zero for watch in slot.watches)

    def _is_second(self, rule: Rule, slot: Slot) -> bool:
        """Whether a metric that the rule prefers is there; if this one is preferred, the others' watches end."""
        rank = rule.metrics.index(slot.canonical)
        for other in rule.metrics[:rank]:
            if other in self._owners:
                return True
        for other in rule.metrics[rank + 1 :]:
            if other in self._owners:
                owner = self._owners[other]
                owner.watches = [watch for watch in owner.watches if watch.rule is not rule or watch.severity]
                owner.skip_zero = any(watch.rule.skip_zero for watch in owner.watches)
        return False

    def _note_phase(self) -> None:
        self._has_actor = self._has_actor or not ACTOR_SIGNS.isdisjoint(self._owners)
        self.has_critic = self.has_critic or not CRITIC_SIGNS.isdisjoint(self._owners)
        self.pretraining = self.has_critic and not self._has_actor

    def snapshot(self) -> dict[str, Any]:
        """The state as strict JSON."""
        slots = []
        for slot in self._slots.values():
            saved: list[Any] = [slot.source, slot.canonical, slot.framework, slot.last_step]
            if slot.series is not None or slot.nan_watch is not None:
                saved.append(
                    {
                        "series": None if slot.series is None else slot.series.snapshot(),
                        "watches": {watch.rule.name: watch.snapshot() for watch in slot.watches},
                        "nan_watch": None if slot.nan_watch is None else slot.nan_watch.snapshot(),
                    }
                )
            slots.append(saved)
        return {"framework": self.framework, "stated": self._stated, "slots": slots}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`snapshot` gave."""
        rules = {rule.name: rule for rule, _ in self._rules}
        self.framework, self._stated = state["framework"], state["stated"]
        for source, canonical, framework, last_step, *rest in state["slots"]:
            resolved = self._catalogue.resolve(source, framework)
            family = "" if resolved.metric is None else resolved.metric.family
            if resolved.canonical != canonical:
                resolved = Resolved(source, None)
            slot = Slot(source, canonical, family, resolved, framework)
            slot.last_step = last_step
            self._slots[source] = self._owners[canonical] = slot
            if rest:
                self._restore_watches(slot, rest[0], rules)
        self._note_phase()
        self._watched = None

    def _restore_watches(self, slot: Slot, saved: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
        for name, watch_state in saved["watches"].items():
            watch = Watch(rules[name])
            watch.restore(watch_state)
            slot.watches.append(watch)
        if saved["series"] is not None:
            metric = slot.resolved.metric
            slot.series = Series(metric.scale if metric is not None else Scale())
            slot.series.restore(saved["series"])
            slot.skip_zero = any(watch.rule.skip_zero for watch in slot.watches)
        if saved["nan_watch"] is not None:
            slot.nan_watch = Watch(NON_FINITE)
            slot.nan_watch.restore(saved["nan_watch"])


def _by_canonical(update: tuple[Slot, float]) -> str:
    return update[0].canonical


def _matcher(rule: Rule) -> Any:
    """A predicate on canonical names: one of the rule's metrics, where a ``{placeholder}`` stands for any text."""
    if not any("{" in metric for metric in rule.metrics):
        return frozenset(rule.metrics).__contains__
    patterns = (
        "".join(".+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{\w+\})", metric))
        for metric in rule.metrics
    )
    return re.compile("|".join(patterns)).fullmatch
