"""From a trainer's own metric names to the canonical ones."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tocsin_detectors.catalogue.metric import TRANSFORMS, Metric, Transform, lookup, metrics, read_data
from tocsin_detectors.catalogue.pattern import Pattern, fill

__all__ = ["FRAMEWORKS", "Catalogue", "Resolved", "guess_framework"]

# Whose reading of an ambiguous name wins if the framework is not known: the more often met first. "custom" holds the
# names that trainers of one's own like to use.
FRAMEWORKS = (
    "verl",
    "trl",
    "openrlhf",
    "ms-swift",
    "slime",
    "miles",
    "prime-rl",
    "nemo-rl",
    "areal",
    "roll",
    "skyrl",
    "open-instruct",
    "tinker-cookbook",
    "custom",
)
# TRL's AsyncGRPO logs under TRL's names, but its `kl` compares with the sampling policy, not with the reference.
ASYNC_TRL = "trl-async"
_ASYNC_TRL_NAMES = frozenset({"weight_sync_time_s", "wait_scoring_ms", "scoring_time_ms", "buffer_qsize"})
_PARENTS = {ASYNC_TRL: "trl"}
_SYNONYMS = {
    "unsloth": "trl",
    "axolotl": "trl",
    "trl/unsloth": "trl",
    "swift": "ms-swift",
    "nemo": "nemo-rl",
    "tinker": "tinker-cookbook",
}
# Patterns are wide nets: those of a framework are used only for its own runs, except these.
_WIDE = ("verl", "trl", "custom")

_LONGEST_NAME = 512  # longer ones are no metric that anyone knows, and would make matching slow
_CACHE_SIZE = 16384
_GUESS_FROM = 1.0  # score from which the names speak for a framework

_VALIDATION = re.compile(r"(?:eval|evaluation|validation|valid|val|test|dev)[/_-]")
_TRANSPORT = re.compile(r"(?:train|training|trainer|metrics|rl)/", re.IGNORECASE)
_REDUCTION = re.compile(r"@(?:mean|max|min|sum|std|last|first|p\d+)$")
_AROUND_SLASH = re.compile(r"\s*/\s*")


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a trainer's metric name means.

    Attributes:
        canonical: the canonical name; the trainer's own if the catalogue doesn't know it.
        metric: what is known of it; None if nothing.
        transform: from the trainer's unit or sign to the canonical one; None if they are the same.
        priority: of two names in one vector with one canonical name the lower counts; of equal ones the
            alphabetically first.
        absent: values that the trainer writes where it has measured nothing: they count as not sent.
    """

    canonical: str
    metric: Metric | None
    transform: Transform | None = None
    priority: int = 0
    absent: tuple[float, ...] = ()

    def apply(self, value: float) -> float:
        """The trainer's value in the canonical unit and sign."""
        return value if self.transform is None else self.transform.apply(value)


@dataclass(frozen=True, slots=True)
class _Alias:
    target: str  # canonical name, with the placeholders of the alias
    transform: Transform | None
    priority: int
    absent: tuple[float, ...] = ()


class _Names:
    """The names of one framework: exact ones and patterns."""

    __slots__ = ("exact", "patterns")

    def __init__(self, rows: Mapping[str, list[str | dict[str, Any]]]) -> None:
        self.exact: dict[str, _Alias] = {}
        patterns: list[tuple[Pattern, _Alias]] = []
        for target, names in rows.items():
            for priority, entry in enumerate(names, start=1):
                given: dict[str, Any] = {"name": entry} if isinstance(entry, str) else entry
                name = given["name"]
                transform = TRANSFORMS[given["transform"]] if "transform" in given else None
                alias = _Alias(target, transform, priority, tuple(given.get("absent", ())))
                if "{" in name:
                    patterns.append((Pattern(name), alias))
                else:
                    self.exact[name] = alias
        self.patterns = tuple(sorted(patterns, key=lambda entry: entry[0].rank))


class Catalogue:
    """Resolves names, and remembers what it has resolved: a trainer sends the same names at every step.

    Every answer is a pure function of name and framework; the cache is bounded and forgets everything when full.
    """

    __slots__ = ("_cache",)

    def __init__(self) -> None:
        self._cache: dict[tuple[str, str | None], Resolved] = {}

    def resolve(self, name: str, framework: str | None = None) -> Resolved:
        """The canonical metric behind a trainer's own metric name.

        Understood are canonical names, the frameworks' own, names whose slashes became underscores, prefixes that
        trackers add ("train/"), spaces and capitals. A validation metric never becomes a metric of training.

        Args:
            name: as the trainer wrote it. Any text is legal.
            framework: decides what an ambiguous name means ("kl"); see :func:`guess_framework`. Without it, or if it
                doesn't know the name, the other frameworks are asked in the order of ``FRAMEWORKS``.
        """
        key = (name, framework)
        known = self._cache.get(key)
        if known is not None:
            return known
        if len(name) > _LONGEST_NAME:
            return Resolved(name, None)
        resolved = next(_readings(name, framework_key(framework)), Resolved(name, None))
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        self._cache[key] = resolved
        return resolved


def framework_key(framework: str | None) -> str | None:
    """The catalogue's key of a framework's name in any spelling ("NeMo_RL", "unsloth"); None if unknown."""
    if framework is None:
        return None
    key = framework.strip().lower().replace("_", "-")
    key = _SYNONYMS.get(key, key)
    return key if key in _names() else None


def guess_framework(names: Iterable[str], stated: str | None = None) -> str | None:
    """The framework that logs these metric names; None if they don't tell.

    Each name speaks for the frameworks that log it, in equal parts, so that a name only one framework has counts most.
    Of equal scores the first in ``FRAMEWORKS`` wins.

    Args:
        names: metric names of a run's first vectors, as written; order and repetition don't matter.
        stated: what the run's configuration says. It is believed if the catalogue knows it; the names only tell
            TRL's asynchronous trainer apart.
    """
    unique = frozenset(names)
    best = framework_key(stated)
    if best is None:
        scores: dict[str, list[float]] = {}
        for name in unique:
            owners = _owners(name)
            for owner in owners:
                scores.setdefault(owner, []).append(1.0 / len(owners))
        # fsum is exact, so the order of a set can't decide
        totals = {owner: math.fsum(parts) for owner, parts in scores.items()}
        likeliest = max(FRAMEWORKS, key=lambda owner: totals.get(owner, 0.0))
        best = likeliest if totals.get(likeliest, 0.0) >= _GUESS_FROM else None
    if best in {None, "trl"} and any(name.removeprefix("train/") in _ASYNC_TRL_NAMES for name in unique):
        return ASYNC_TRL
    return best


def _readings(name: str, framework: str | None) -> Iterator[Resolved]:
    """Every reading of the name that ends at a known metric, best first."""
    metric = lookup(name)
    if metric is not None:
        yield Resolved(name, metric)
    tables = _names()
    spellings = tuple(_spellings(name))
    own = [key for key in (framework, _PARENTS.get(framework or "")) if key]
    others = [key for key in FRAMEWORKS if key not in own]
    yield from _exact(spellings, [(tables[key], 0) for key in own])
    for spelling in spellings[1:]:
        metric = lookup(spelling)
        if metric is not None:
            yield Resolved(spelling, metric)
    yield from _matching(spellings, [(tables[key], 0) for key in own])
    yield from _exact(spellings, [(tables[key], 100 * rank) for rank, key in enumerate(others, start=1)])
    yield from _exact(spellings, [(_flat_verl(), 0)])
    wide = ("verl",) if own else _WIDE
    yield from _matching(spellings, [(tables[key], 100) for key in wide])


def _exact(spellings: tuple[str, ...], tables: list[tuple[_Names, int]]) -> Iterator[Resolved]:
    for table, offset in tables:
        for spelling in spellings:
            alias = table.exact.get(spelling)
            if alias is not None:
                yield from _reading(alias, {}, offset)


def _matching(spellings: tuple[str, ...], tables: list[tuple[_Names, int]]) -> Iterator[Resolved]:
    is_validation = any(_VALIDATION.match(spelling.lower()) for spelling in spellings)
    for table, offset in tables:
        for pattern, alias in table.patterns:
            if is_validation and not alias.target.startswith("val-"):
                continue  # "{domain}/critic/kl" would take in "eval/critic/kl"
            for spelling in spellings:
                parts = pattern.match(spelling)
                if parts is not None:
                    yield from _reading(alias, parts, offset)


def _reading(alias: _Alias, parts: Mapping[str, str], offset: int) -> Iterator[Resolved]:
    canonical = fill(alias.target, parts)
    metric = lookup(canonical)
    if metric is not None:
        yield Resolved(canonical, metric, alias.transform, alias.priority + offset, alias.absent)


def _spellings(name: str) -> Iterator[str]:
    """The name as written, then with less and less of what trackers add to it."""
    plain = _REDUCTION.sub("", _AROUND_SLASH.sub("/", name.strip()))
    prefix = _TRANSPORT.match(plain)
    bare = plain[prefix.end() :] if prefix else plain
    # In verl's bypass mode these come from inside the actor's loss.
    inner = bare.removeprefix("actor/") if bare.startswith("actor/rollout_corr/") else bare
    lower = inner.lower().replace(" ", "_")
    yield from dict.fromkeys((name, plain, bare, inner, lower))


def _owners(name: str) -> list[str]:
    """The frameworks that log a metric of this name."""
    spellings = tuple(_spellings(name[:_LONGEST_NAME]))
    owners = [
        key
        for key in FRAMEWORKS[:-1]
        if any(True for _ in _exact(spellings, [(_names()[key], 0)]))
        or any(True for _ in _matching(spellings, [(_names()[key], 0)]))
    ]
    if "verl" not in owners and any(lookup(text) or text in _flat_verl().exact for text in spellings):
        owners.append("verl")
    return owners


@functools.cache
def _names() -> Mapping[str, _Names]:
    return {framework: _Names(rows) for framework, rows in read_data("aliases.json").items()}


@functools.cache
def _flat_verl() -> _Names:
    """Verl's names as spreadsheets and some trackers export them: "actor_kl_loss" for "actor/kl_loss"."""
    names = _Names({})
    known = {name: _Alias(name, None, 0) for name, metric in metrics().items() if not metric.is_pattern}
    for name, alias in (_names()["verl"].exact | known).items():
        names.exact.setdefault(name.replace("/", "_"), alias)
    return names
