"""safetensors bodies for tests, made by hand: nothing of ours and no library packs them; and how to send them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np

DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "uint16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


def pack(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None, **changed: Any) -> bytes:
    """A body. ``changed`` replaces parts of the description of the tensor of that name."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    begin = 0
    for name, tensor in sorted(tensors.items(), key=lambda pair: -pair[1].dtype.itemsize):
        end = begin + tensor.nbytes
        header[name] = {"dtype": DTYPES[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        header[name] |= changed.get(name, {})
        begin = end
    text = json.dumps(header).encode()
    data = [tensor.tobytes() for tensor in sorted(tensors.values(), key=lambda tensor: -tensor.dtype.itemsize)]
    return b"".join([len(text).to_bytes(8, "little"), text, *data])


def bf16(values: np.ndarray) -> np.ndarray:
    """The upper half of each float32, which pack() sends as BF16."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def ragged(rows: int = 8, width: int = 64, gap: float = 0.02, seed: int = 0) -> dict[str, np.ndarray]:
    """Log-probs of two engines that differ by ``gap`` (a standard deviation), flat."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, width, rows, endpoint=True).astype(np.int32)
    old = -random.exponential(0.5, int(lengths.sum())).astype(np.float32)
    rollout = old + gap * random.standard_normal(old.size, dtype=np.float32)
    return {"old_log_probs": old, "rollout_log_probs": rollout, "response_lengths": lengths}


def padded(tensors: Mapping[str, np.ndarray], width: int = 64, filling: float = np.nan) -> dict[str, np.ndarray]:
    """The same batch as rectangles with a mask."""
    lengths = tensors["response_lengths"]
    mask = np.arange(width) < lengths[:, None]
    found: dict[str, np.ndarray] = {"response_mask": mask}
    for name, flat in tensors.items():
        if name != "response_lengths":
            found[name] = np.full(mask.shape, filling, flat.dtype)
            found[name][mask] = flat
    return found


def post(api: Any, body: bytes, headers: dict[str, str] | None = None, **query: Any) -> Any:
    """Sends tensors of the run "run"."""
    path = f"/v1/runs/run/tensors?{urlencode({'step': 1, **query}, doseq=True)}"
    return api.call("POST", path, body, headers)


KL = "rollout_corr/kl"


def kl(tensors: Mapping[str, np.ndarray]) -> float:
    """What KL must be."""
    return float(np.mean(tensors["rollout_log_probs"].astype(float) - tensors["old_log_probs"]))


def series(api: Any, metric: str) -> dict[str, Any]:
    """The run's values of a metric."""
    (found,) = api.get(f"/v1/runs/run/series?metric={metric}&limit=10000").json["series"]
    return dict(found)


@contextmanager
def raw(api: Any, head: str, body: bytes = b"") -> Iterator[socket.socket]:
    """A connection on which a request with these headers was begun."""
    parts = urlsplit(api.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        lines = f"POST /v1/runs/run/tensors?step=1 HTTP/1.1\r\nHost: localhost\r\n{head}\r\n"
        connection.sendall(lines.encode() + body)
        yield connection


def tensors_of(api: Any) -> Any:
    """The service's worker for tensors."""
    return api.service._wired.app._app.state.context.tensors
