"""Which worker serves what: the same for everybody, even, and moved no more than needed."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin_service.store.redis.partitions import PARTITIONS, owners, partition_of, served_by

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=30)
crews = st.lists(names, min_size=1, max_size=40, unique=True)


@given(st.text(max_size=128))
def test_the_partition_of_a_run_is_a_protocol(run: str) -> None:
    assert partition_of(run) == zlib.crc32(run.encode()) % 16


def test_runs_spread_over_the_partitions() -> None:
    counts = [0] * PARTITIONS
    for number in range(1600):
        counts[partition_of(f"qwen-grpo-{number}")] += 1
    assert min(counts) > 60
    assert max(counts) < 140


@given(crews, st.randoms())
def test_every_partition_has_one_owner_whoever_asks(crew: list[str], random: object) -> None:
    dealt = owners(crew)
    assert set(dealt) == set(range(PARTITIONS))
    random.shuffle(crew)  # type: ignore[attr-defined]
    assert owners([*crew, crew[0]]) == dealt
    shares = [served_by(name, crew) for name in crew]
    assert sorted(number for share in shares for number in share) == list(range(PARTITIONS))


@given(crews)
def test_shares_differ_by_one_at_most(crew: list[str]) -> None:
    sizes = [len(served_by(name, crew)) for name in crew]
    assert max(sizes) - min(sizes) <= 1


@given(crews, names)
def test_who_joins_takes_a_share(crew: list[str], newcomer: str) -> None:
    if newcomer in crew:
        return
    before, after = owners(crew), owners([*crew, newcomer])
    moved = [number for number in range(PARTITIONS) if before[number] != after[number]]
    taken = len(served_by(newcomer, [*crew, newcomer]))
    assert taken <= len(moved)
    assert taken <= PARTITIONS // len(crew) + 1


@pytest.mark.parametrize(("workers", "most"), [(1, 8.0), (2, 7.0), (4, 6.0), (8, 4.0)])
def test_on_the_average_hardly_more_move_than_must(workers: int, most: float) -> None:
    """Dealing anew by number would move nearly all of them."""
    moves = 0
    for trial in range(200):
        crew = [f"host-{trial}-{number}" for number in range(workers + 1)]
        before, after = owners(crew[:-1]), owners(crew)
        moves += sum(before[number] != after[number] for number in range(PARTITIONS))
    assert moves / 200 <= most


def test_nobody_is_there() -> None:
    assert owners([]) == {}
    assert served_by("a", []) == served_by("a", ["b"]) == frozenset()
