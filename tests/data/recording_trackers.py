"""Record what real trackers write: `python tests/data/recording_trackers.py` makes tests/data/trackers anew.

Needs wandb, tensorboardX and numpy. What wandb keeps of the machine is left out: only the rows, the summary and the end
of its run stay in its file.
"""

from __future__ import annotations

import math
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "trackers"
STEPS = 12
BLOCK = 32768
KEPT = ("history", "summary", "exit")


def rows() -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of both logs: NaN at step 5, infinity at step 6, and one row too large for a block of wandb's file."""
    for step in range(1, STEPS + 1):
        special = {5: math.nan, 6: math.inf}.get(step, step / 8)
        row: dict[str, Any] = {"actor/kl_loss": step / 128, "actor/grad_norm": special, "critic/score/mean": 0.5}
        if step == STEPS:
            row |= {f"val-core/source_{number}/acc/mean@1": number / 4 for number in range(600)}
        yield step, row


def record_wandb(folder: Path) -> None:
    import wandb  # noqa: PLC0415 - only who records needs it

    with tempfile.TemporaryDirectory() as place:
        settings = wandb.Settings(x_disable_stats=True, x_disable_meta=True, console="off")
        run = wandb.init(project="tocsin", id="recorded", mode="offline", dir=place, settings=settings)
        for step, row in rows():
            run.log({**row, "note": "hello", "nested": {"depth": step}}, step=step)
        run.finish()
        [file] = Path(place).rglob("run-*.wandb")
        folder.mkdir(parents=True)
        (folder / "run-recorded.wandb").write_bytes(rewritten(file.read_bytes()))


def rewritten(content: bytes) -> bytes:
    """The file with the kept records only, in the same format."""
    from wandb.proto import wandb_internal_pb2 as messages  # noqa: PLC0415

    out = bytearray(content[:7])
    for data in records(content):
        record = messages.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") in KEPT:
            for piece, kind in pieces(data, len(out)):
                out += (
                    piece
                    if not kind
                    else struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
                )
    return bytes(out)


def records(content: bytes) -> Iterator[bytes]:
    position, data = 7, b""
    while position + 7 <= len(content):
        if BLOCK - position % BLOCK < 7:
            position += BLOCK - position % BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", content, position)
        data = content[position + 7 : position + 7 + size] if kind in {1, 2} else data + content[position + 7 :][:size]
        position += 7 + size
        if kind in {1, 4}:
            yield data


def pieces(data: bytes, position: int) -> Iterator[tuple[bytes, int]]:
    """What is written for a record, each with its kind, 0 for the filling of a block."""
    first = True
    while first or data:
        left = BLOCK - position % BLOCK
        if left < 7:
            yield bytes(left), 0
            position += left
            continue
        piece, data = data[: left - 7], data[left - 7 :]
        yield piece, (1 if first else 4) if not data else (2 if first else 3)
        position += 7 + len(piece)
        first = False


def record_tensorboard(folder: Path) -> None:
    import numpy as np  # noqa: PLC0415
    from tensorboardX import SummaryWriter  # noqa: PLC0415

    writer = SummaryWriter(str(folder), filename_suffix=".recorded")
    for step, row in rows():
        scalars: Mapping[str, float] = {name: value for name, value in row.items() if not name.startswith("val-core")}
        for name, value in scalars.items():
            writer.add_scalar(name, value, step, walltime=1767225600.0 + step)
        writer.add_text("sample", "step: 1 - actor/kl_loss: 3", step, walltime=1767225600.0 + step)
    writer.add_histogram("weights", np.arange(100.0), STEPS, walltime=1767225600.0 + STEPS)
    writer.close()
    [file] = folder.iterdir()
    file.rename(folder / "events.out.tfevents.1767225600.recorded")


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    record_wandb(FOLDER / "wandb")
    record_tensorboard(FOLDER / "tensorboard")
