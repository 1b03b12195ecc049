"""Tensors of torch or numpy, copied into one safetensors body; neither library is imported here.

A caller that passes a tensor has imported its library, so it is looked up among the loaded modules. The copy is the
packing: every tensor goes once, straight to its place in the body, whatever its strides or its device are.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tocsin._guard import Mistake

__all__ = ["NAMES", "Parcel", "Piece", "pack", "pieces_of", "size_of"]

NAMES = frozenset(
    {
        "advantages",
        "cu_seqlens",
        "domain",
        "entropys",
        "gradient_step",
        "group",
        "log_probs",
        "old_log_probs",
        "prompt",
        "prompt_lengths",
        "ref_log_prob",
        "response_lengths",
        "response_mask",
        "returns",
        "rewards",
        "rollout_log_probs",
        "scores",
        "token_level_rewards",
        "token_level_scores",
        "values",
    }
)
"""The tensors that the server knows. A trainer's batch may hold others: they are not sent."""

_ALIGNMENT = 64  # of the data in memory
_HEAD_SIZE = 2048  # about what the header takes
_DTYPES = {  # both libraries' name of a dtype to the format's name and bytes
    "float64": ("F64", 8),
    "float32": ("F32", 4),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "int64": ("I64", 8),
    "int32": ("I32", 4),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "uint8": ("U8", 1),
    "bool": ("BOOL", 1),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor to be packed.

    Attributes:
        value: a numpy array, or a torch tensor that needs no gradient.
        dtype: the format's name of its dtype.
        item: bytes of one of its numbers.
        device: where a torch tensor is; None for a numpy array.
    """

    name: str
    value: Any
    dtype: str
    item: int
    shape: tuple[int, ...]
    device: Any

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.item * math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Parcel:
    """A packed body.

    Attributes:
        body: all of it, contiguous.
        wait: returns when the bytes have arrived from the device; to be called before the body is read.
    """

    body: memoryview
    wait: Callable[[], None]


def pieces_of(tensors: Mapping[str, Any]) -> tuple[list[Piece], list[str]]:
    """What is to be packed, and the names that the server doesn't know; looks at shapes and types alone.

    Raises:
        Mistake: a tensor that the server knows can't be packed, or there is none.
    """
    pieces: list[Piece] = []
    unknown: list[str] = []
    for name, value in list(tensors.items()):
        if name not in NAMES:
            unknown.append(str(name))
        elif value is not None:
            pieces.append(_piece(name, value))
    if not pieces:
        raise Mistake(f"log_tensors() got none of the tensors that the server knows: {', '.join(sorted(NAMES))}")
    # The largest items first, so that every tensor begins at a multiple of its item's size.
    pieces.sort(key=lambda piece: (-piece.item, piece.name))
    return pieces, sorted(unknown)


def size_of(pieces: Iterable[Piece]) -> int:
    """About how many bytes the packed body has."""
    return sum(piece.size for piece in pieces) + _HEAD_SIZE


def pack(pieces: Sequence[Piece], metadata: Mapping[str, str]) -> Parcel:
    """Copies the tensors into a body of their own.

    The copy from a CUDA device is only begun: it runs on a stream of its own, behind what the caller has queued so far,
    into pinned memory; the device's memory is free for others as soon as it is done.
    """
    head = _head(pieces, metadata)
    size = len(head) + sum(piece.size for piece in pieces)
    torch: Any = sys.modules.get("torch")
    devices = {piece.device for piece in pieces if piece.device is not None and piece.device.type == "cuda"}
    if devices and torch.cuda.is_current_stream_capturing():
        raise Mistake("tensors can't be copied while a CUDA graph is captured: call log_tensors() outside of it")
    if devices:
        pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        body = _host_memory(pinned)
        waits = [_copy_from_cuda(pieces, device, pinned, len(head)) for device in devices]
    else:
        body = memoryview(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        pinned, waits = None, []
    body[: len(head)] = head
    _copy_from_host(pieces, body, len(head), devices)

    def wait() -> None:
        _ = pinned  # the body is its memory
        for one in waits:
            one()

    return Parcel(body, wait)


def _piece(name: str, value: Any) -> Piece:
    numpy: Any = sys.modules.get("numpy")
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if hasattr(value, "placements") and hasattr(value, "to_local"):
            raise Mistake(f"tensor {name!r} is sharded over processes: pass its full_tensor() or its to_local()")
        if value.layout is not torch.strided:
            raise Mistake(f"tensor {name!r} is sparse or nested: pass it padded with a mask, or flat with lengths")
        value, kind, device = value.detach(), str(value.dtype).removeprefix("torch."), value.device
    elif numpy is not None and isinstance(value, numpy.ndarray):
        kind, device = value.dtype.name, None
    else:
        raise Mistake(f"{name!r} is a {type(value).__name__}; log_tensors() takes torch tensors and numpy arrays")
    if kind not in _DTYPES:
        raise Mistake(f"tensor {name!r} is of type {kind}; send any of: {', '.join(_DTYPES)}")
    dtype, item = _DTYPES[kind]
    return Piece(name, value, dtype, item, tuple(int(extent) for extent in value.shape), device)


def _head(pieces: Sequence[Piece], metadata: Mapping[str, str]) -> bytes:
    """The format's length and header, padded so that the data behind it is aligned."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    for piece, begin in _places(pieces, 0):
        offsets = [begin, begin + piece.size]
        header[piece.name] = {"dtype": piece.dtype, "shape": list(piece.shape), "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _places(pieces: Iterable[Piece], begin: int) -> Iterator[tuple[Piece, int]]:
    for piece in pieces:
        yield piece, begin
        begin += piece.size


def _copy_from_host(pieces: Iterable[Piece], body: memoryview, begin: int, elsewhere: Collection[Any]) -> None:
    """Copies what is not on a device of ``elsewhere`` into its place."""
    for piece, place in _places(pieces, begin):
        if not piece.size or piece.device in elsewhere:
            continue
        room = body[place : place + piece.size]
        if piece.device is None:
            numpy: Any = sys.modules["numpy"]
            # The type without its byte order: the body is in this machine's.
            numpy.frombuffer(room, piece.value.dtype.type).reshape(piece.shape)[...] = piece.value
        else:
            torch: Any = sys.modules["torch"]
            torch.frombuffer(room, dtype=piece.value.dtype).view(piece.shape).copy_(piece.value)


def _copy_from_cuda(pieces: Iterable[Piece], device: Any, pinned: Any, begin: int) -> Callable[[], None]:
    """Begins the copies from one device; what is returned waits for their end."""
    torch: Any = sys.modules["torch"]
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for piece, place in _places(pieces, begin):
            if piece.size and piece.device == device:
                room = pinned[place : place + piece.size].view(piece.value.dtype).view(piece.shape)
                room.copy_(piece.value, non_blocking=True)
                piece.value.record_stream(stream)
        event = stream.record_event()
    wait: Callable[[], None] = event.synchronize
    return wait


def _host_memory(tensor: Any) -> memoryview:
    """The bytes of a contiguous host tensor, also where there is no numpy; the tensor must outlive them."""
    return memoryview((ctypes.c_ubyte * tensor.numel()).from_address(tensor.data_ptr())).cast("B")
