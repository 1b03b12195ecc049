"""A run's configuration as a hash: so configurations merge in Redis, and nobody's update is lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tocsin_detectors.entries import RunConfig
from tocsin_service.store.encoding import config_fields, dump

__all__ = ["config_from_hash", "config_to_hash"]

LABEL = "label:"


def config_to_hash(config: RunConfig) -> dict[str, str]:
    """Every field and every label that is set, and its value as JSON. Equal values are equal texts."""
    fields = dict(config_fields(config))
    labels = fields.pop("labels", {})
    return {name: _text(value) for name, value in fields.items()} | {
        LABEL + name: _text(value) for name, value in labels.items()
    }


def config_from_hash(fields: Mapping[str, str]) -> RunConfig:
    """Inverse of :func:`config_to_hash`."""
    values: dict[str, Any] = {name: json.loads(text) for name, text in fields.items() if not name.startswith(LABEL)}
    labels = {name.removeprefix(LABEL): json.loads(text) for name, text in fields.items() if name.startswith(LABEL)}
    return RunConfig(**values, labels=labels)


def _text(value: Any) -> str:
    # 1 and 1.0 are the same temperature.
    return dump(int(value) if isinstance(value, float) and value.is_integer() else value)
