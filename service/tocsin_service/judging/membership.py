"""Who works: one sorted set in Redis, from a worker's name to when it was last heard of.

A worker that has been silent for :data:`DEAD_SECONDS` is dead to the others. Redis's own clock says when, so the clocks
of the machines may differ. Two workers that disagree for a moment on who is alive do no harm: both may fold a run, and
the store takes one of the two commits.
"""

from __future__ import annotations

import os
import secrets
import socket

from redis import Redis

__all__ = ["DEAD_SECONDS", "Membership", "alive", "worker_name"]

KEY = "tocsin:workers"
DEAD_SECONDS = 5.0

_BEAT = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
if ARGV[1] ~= '' then redis.call('ZADD', KEYS[1], now, ARGV[1]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""


def worker_name() -> str:
    """A name that no other worker has or had: host, process and chance."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def alive(client: Redis) -> list[str]:
    """Names of the workers heard of in the last :data:`DEAD_SECONDS`."""
    return _beat(client, "")


class Membership:
    """One worker's place among the others."""

    def __init__(self, client: Redis, name: str) -> None:
        self._client, self.name = client, name

    def beat(self) -> list[str]:
        """Says that this worker lives; names of all that do, this one among them."""
        return _beat(self._client, self.name)

    def leave(self) -> None:
        """Says that this worker ends, so that the others needn't find out by its silence."""
        self._client.zrem(KEY, self.name)


def _beat(client: Redis, name: str) -> list[str]:
    found: list[bytes] = client.eval(_BEAT, 1, KEY, name, str(DEAD_SECONDS))
    return [one.decode(errors="replace") for one in found]
