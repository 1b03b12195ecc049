"""docker-compose.yml's profiles `shared` and `monitoring`, run natively with the same files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.deploy.fleet import Fleet, start_fleet, start_prometheus
from tests.deploy.native import needs


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    """Redis, the API and two workers."""
    needs("redis-server")
    with ExitStack() as stack:
        yield start_fleet(stack)


@pytest.fixture(scope="session")
def prometheus(fleet: Fleet) -> Iterator[str]:
    """Address of a Prometheus that scrapes the fleet every other second."""
    needs("prometheus")
    with ExitStack() as stack:
        yield start_prometheus(stack, fleet)
