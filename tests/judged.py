"""What the API shows, compared with what the fold says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tocsin_service.commands.verdict import judge

OF_PEOPLE = {"acknowledged", "silenced"}  # what people did about it, beside the fold


def by_id(rows: Iterable[dict[str, Any]], without: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Alerts or incidents by their ids, without what people did about them and the other fields named."""
    left_out = OF_PEOPLE.union(without)
    return {row["id"]: {name: value for name, value in row.items() if name not in left_out} for row in rows}


def check_same(api: Any, recording: Any) -> None:
    """What the service tells of the run is what the offline check says, to the last field."""
    verdict = judge(recording.name, recording.vectors, recording.config).to_json()
    path = f"/v1/runs/{recording.name}"
    assert by_id(api.get(f"{path}/alerts").json["alerts"]) == by_id(verdict["alerts"])
    assert by_id(api.get(f"{path}/incidents").json["incidents"]) == by_id(verdict["incidents"])
