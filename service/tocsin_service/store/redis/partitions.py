"""Which worker serves which runs: a pure function of the workers' names, so that nobody has to lead.

A run belongs to one of 16 partitions for ever, and a partition to one worker for as long as the same workers live.
Partitions are dealt by rendezvous hashing (every worker has a score for every partition, the highest score gets it;
Thaler and Ravishankar 1998) with one more condition: no worker gets more than its share. That costs a few moves when
somebody joins or leaves, and in return the shares never differ by more than one.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping

__all__ = ["PARTITIONS", "owners", "partition_of", "served_by"]

PARTITIONS = 16  # part of the protocol: whoever writes a nudge computes it; more workers than this stand by


def partition_of(run: str) -> int:
    """The partition of ``run``: 0 to 15."""
    return zlib.crc32(run.encode(errors="surrogateescape")) % PARTITIONS


def owners(workers: Iterable[str]) -> Mapping[int, str]:
    """The worker of every partition; empty if there are no workers.

    Args:
        workers: names of those alive, in any order.
    """
    names = sorted(set(workers))
    if not names:
        return {}
    share, larger_shares = divmod(PARTITIONS, len(names))
    held = dict.fromkeys(names, 0)
    dealt: dict[int, str] = {}
    wishes = sorted(
        ((_score(name, number), number, name) for name in names for number in range(PARTITIONS)), reverse=True
    )
    for _, number, name in wishes:
        beyond = held[name] >= share
        if number in dealt or held[name] > share or (beyond and not larger_shares):
            continue
        dealt[number] = name
        held[name] += 1
        larger_shares -= beyond
    return dealt


def served_by(name: str, workers: Iterable[str]) -> frozenset[int]:
    """The partitions that fall to ``name``."""
    return frozenset(number for number, owner in owners(workers).items() if owner == name)


def _score(name: str, number: int) -> bytes:
    return hashlib.blake2b(f"{number}:{name}".encode(), digest_size=8).digest()
