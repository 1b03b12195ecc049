"""Files of receivers for tests and benchmarks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_receivers(folder: Path, *receivers: dict[str, Any], routes: Sequence[dict[str, Any]] = ()) -> Path:
    """A file of receivers; JSON is YAML."""
    path = folder / "receivers.yaml"
    path.write_text(json.dumps({"receivers": receivers, "routes": routes}))
    return path


def unpaced(folder: Path, kind: str, address: str) -> Path:
    """A file with one receiver that gets everything by itself, called by its kind."""
    secret = folder / f"{kind}.secret"
    secret.write_text(address)
    option = {"slack": "webhook_file"}.get(kind, "address_file")
    return write_receivers(folder, {"name": kind, kind: {option: str(secret)}, "pace": {"burst": 1000, "seconds": 0.1}})
