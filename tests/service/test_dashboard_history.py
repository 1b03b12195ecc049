"""Curves that are kept in memory say what the log says, whatever happens to it, and take no more room than they may."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.service.stores import NOW, OpenStore, add, change, positions, summary

from tocsin_detectors.entries import Rebaseline, RunConfig, StepVector
from tocsin_service.dashboard import history
from tocsin_service.dashboard.charts import Window, charts_to_json
from tocsin_service.dashboard.history import History
from tocsin_service.store import Record, Retention, Store, StoreUnavailable

DAY = 86_400.0
ALL = Window(5000)


def vectors(steps: Any, now: float, **changes: Any) -> list[Record]:
    """Steps whose values are never the same at two times."""
    named = {"loss": math.nan, "reward": now, "rewards/avg": 1.0}  # the last means something else in each framework
    return [Record(StepVector(step, {**named, "own/b": step + now / 7}, now + step, **changes)) for step in steps]


def shown(kept: History, store: Store) -> Any:
    """All that an answer has; NaN as a text, so that it can be compared."""
    with kept.curves(summary(store)) as curves:
        return curves.position, curves.attempt, curves.complete, curves.lives, charts_to_json(curves, ALL, "en")


def fold(store: Store) -> None:
    """All of the log counts as judged, so that it may go."""
    reached = store.load("r").position
    here = positions(store)[-1]
    assert store.commit("r", change(reached, here, state={}, attempt=1))


def test_what_is_kept_is_what_the_log_says(open_store: OpenStore) -> None:
    store, dice, now, step = open_store(), random.Random(7), NOW, 0  # noqa: S311 - the same every time
    kept = History(store)
    add(store, *vectors(range(5), now))
    seen = set()
    for _ in range(40):
        now += 1000.0
        act = dice.choice(["on", "on", "on", "back", "again", "computed", "framework", "rebaseline", "trim", "nothing"])
        seen.add(act)
        match act:
            case "on":
                count = dice.choice([1, 3, 300])
                add(store, *vectors(range(step, step + count), now))
                step += count
            case "back":
                step = max(0, step - dice.randint(1, 20))
                add(store, *vectors(range(step, step + 2), now))
                step += 2
            case "again":
                add(store, *vectors(range(max(0, step - 2), step), now - 1000.0))
            case "computed":
                add(store, Record(StepVector(max(0, step - 1), {"own/c": now}, now, computed=True)))
            case "framework":
                add(store, Record(RunConfig(framework=dice.choice(["trl", "verl"]))))
            case "rebaseline":
                add(store, Record(Rebaseline(None, str(now))))
            case "trim":
                fold(store)
                store.trim(Retention(entries=dice.choice([20, 200])), now)
        assert shown(kept, store) == shown(History(store), store)
    assert len(seen) == 8


def test_a_run_that_was_removed_and_made_again(open_store: OpenStore) -> None:
    store = open_store()
    kept = History(store)
    add(store, *vectors(range(9), NOW))
    before = shown(kept, store)
    fold(store)
    assert store.trim(Retention(days=1), NOW + 9 * DAY).runs == 1
    add(store, *vectors(range(12), NOW + 9 * DAY), now=NOW + 9 * DAY)
    assert shown(kept, store) == shown(History(store), store) != before


class Counted:
    """A store that counts the entries of the pages read from it, and gives a page half when told to."""

    def __init__(self, store: Store) -> None:
        self._store, self.entries, self.breaks = store, 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, run: str, after: int, limit: int) -> Any:
        found = self._store.read(run, after, limit)
        self.entries += len(found) if limit > 1 else 0
        if self.breaks and limit > 1:
            self.breaks = False
            return HalfPage(found)
        return found


class HalfPage(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from self[: len(self) // 2]
        raise StoreUnavailable("away")


def test_only_what_is_new_is_read_again(open_store: OpenStore) -> None:
    store: Any = Counted(open_store())
    kept = History(store)
    add(store, *vectors(range(1000), NOW))
    shown(kept, store)
    add(store, *vectors(range(1000, 1003), NOW))
    shown(kept, store)
    shown(kept, store)
    assert store.entries == 1003


def test_what_was_read_halfway_is_read_anew(open_store: OpenStore) -> None:
    store: Any = Counted(open_store())
    kept = History(store)
    add(store, *vectors(range(50), NOW), *vectors(range(20, 80), NOW + 1000))  # a resume, in the half that is read
    store.breaks = True
    with pytest.raises(StoreUnavailable):
        shown(kept, store)
    assert shown(kept, store) == shown(History(store), store)


def test_it_takes_no_more_room_than_it_may(open_store: OpenStore) -> None:
    store = open_store()
    for run in ("a", "b", "c"):
        add(store, *vectors(range(500), NOW), run=run)

    def look(kept: History, run: str) -> int:
        with kept.curves(summary(store, run)) as curves:
            return sum(len(part.steps) for _, _, parts in curves.columns.values() for part in parts)

    all_of_one = History(store)
    assert look(all_of_one, "a") == 1500
    room = all_of_one.size
    kept = History(store, int(2.5 * room))
    assert [look(kept, run) for run in "abcabc"] == [1500] * 6
    assert room < kept.size <= 2.5 * room
    small = History(store, room // 2)
    assert look(small, "a") == 1500
    assert small.size == 0


def test_a_very_long_log_is_read_from_further_on(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_ENTRIES", 100)
    store = open_store()
    kept = History(store)
    for first in range(0, 600, 10):
        add(store, *vectors(range(first, first + 10), NOW))
        with kept.curves(summary(store)) as curves:
            (*_, (_, _, (part,))) = curves.columns.values()
            assert part.steps[-1] == first + 9
            assert min(first + 10, 100) <= len(part.steps) <= 136
            assert curves.complete == (part.steps[0] == 0)


def test_many_may_look_while_it_grows(open_store: OpenStore) -> None:
    store: Any = Counted(open_store())
    kept, ends, wrong = History(store), threading.Event(), list[Any]()
    add(store, *vectors(range(10), NOW))

    def look() -> Iterator[list[int]]:
        with kept.curves(summary(store)) as curves:
            yield from (list(part.arrays()[0]) for _, _, parts in curves.columns.values() for part in parts)

    def watch() -> None:
        while not ends.is_set():
            wrong.extend(steps for steps in look() if steps != list(range(len(steps))))

    threads = [threading.Thread(target=watch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for step in range(10, 60):
        add(store, *vectors([step], NOW))
    ends.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert {len(steps) for steps in look()} == {60}
    assert store.entries == 60  # none of them twice
