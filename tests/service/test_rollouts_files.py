"""The files of the rollout log: written whole, merged without loss, sampled, redacted, and removed when it is time."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import pyarrow.parquet as pq  # noqa: E402 - it may be missing
from tests.service.rollout_rows import ndjson, rows  # noqa: E402

from tocsin_service.app import Service, StartError  # noqa: E402
from tocsin_service.rollouts import compaction  # noqa: E402
from tocsin_service.rollouts.decoding import decode  # noqa: E402
from tocsin_service.rollouts.errors import RolloutsUnavailable  # noqa: E402
from tocsin_service.rollouts.files import Folder, key_of, scan_all  # noqa: E402
from tocsin_service.rollouts.queries import Choice, Queries  # noqa: E402
from tocsin_service.rollouts.redaction import Redaction  # noqa: E402
from tocsin_service.rollouts.sampling import Columns, Sampling  # noqa: E402
from tocsin_service.rollouts.schema import KEPT  # noqa: E402
from tocsin_service.rollouts.writing import Keeper, Step, measured  # noqa: E402
from tocsin_service.settings import Settings, SettingsError, load  # noqa: E402


def keeper(root: Path, **changes: Any) -> Keeper:
    options: dict[str, Any] = {"sampling": Sampling(), "redaction": Redaction(None, None), "most_bytes": 2**40}
    return Keeper(root, days=0.0, **{**options, **changes})


def keep(one: Keeper, step: int, listed: list[dict[str, Any]], run: str = "run") -> None:
    body = ndjson(listed)
    table, _ = decode(body, "application/x-ndjson", 2**30)
    one.keep(Step(run, step, None, 1.7e9 + step, key_of(step, body.hex())), measured(table, None))


def everything(root: Path, run: str = "run") -> list[tuple[int, int, str]]:
    queries = Queries(root)
    found = queries.rows(run, Choice(limit=100_000))
    queries.close()
    return sorted((row["step"], row["index"], row["response"]) for row in found)


# Merging


def test_merging_loses_and_doubles_nothing(tmp_path: Path) -> None:
    one, expected = keeper(tmp_path), []
    for step in reversed(range(compaction.SMALL_FILES)):
        listed = rows(5, response=f"of step {step}")
        keep(one, step, listed)
        expected += [(step, row["index"], row["response"]) for row in listed]
        assert compaction.compact(Folder(tmp_path, "run")) is (step == 0)
    (merged,) = Folder(tmp_path, "run").files()
    assert (merged.first, merged.last) == (0, compaction.SMALL_FILES - 1)
    assert everything(tmp_path) == sorted(expected)
    with pq.ParquetFile(merged.path) as file:
        assert file.schema_arrow.names == KEPT.names
    for step in range(compaction.SMALL_FILES):  # what is merged is still known
        keep(one, step, rows(5, response=f"of step {step}"))
    assert len(Folder(tmp_path, "run").files()) == 1


def test_merged_files_are_merged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL_FILES", 4)
    one = keeper(tmp_path)
    for step in range(13):
        keep(one, step, rows(3))
        one.tidy("run")
    assert len(Folder(tmp_path, "run").files()) < 4
    assert [row[0] for row in everything(tmp_path)] == [step for step in range(13) for _ in range(3)]
    keep(one, 0, rows(3))
    assert len(everything(tmp_path)) == 39


def test_a_crash_between_the_merged_file_and_the_end_of_its_parts(tmp_path: Path) -> None:
    """Both are there then; the rows count once, and the next look removes what is too much."""
    one, folder = keeper(tmp_path), Folder(tmp_path, "run")
    for step in range(compaction.SMALL_FILES):
        keep(one, step, rows(2))
    parts = [(part.path, part.path.read_bytes()) for part in folder.files()]
    assert compaction.compact(folder)
    for path, data in parts[:10]:
        path.write_bytes(data)
    assert len(everything(tmp_path)) == 2 * compaction.SMALL_FILES
    assert len(folder.superseded()) == 10
    assert not compaction.compact(folder)
    assert len(list(folder.path.glob("*.parquet"))) == 1


def test_readers_see_every_row_once_while_files_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL_FILES", 3)
    one, written, seen, done = keeper(tmp_path), [0], [], threading.Event()

    def look() -> None:
        queries = Queries(tmp_path)
        while not done.is_set():
            before = written[0]
            counts = [row["rows"] for row in queries.steps("run", None, None, 1000)]
            seen.append((before, len(counts), set(counts)))
        queries.close()

    reader = threading.Thread(target=look)
    reader.start()
    for step in range(60):
        keep(one, step, rows(2))
        written[0] = step + 1
        one.tidy("run")
    done.set()
    reader.join(60)
    assert seen
    for before, count, each in seen:
        assert count >= before
        assert each <= {2}


def test_row_groups_stay_small_enough_to_read_one_step(tmp_path: Path) -> None:
    one = keeper(tmp_path)
    keep(one, 1, rows(60, response="".join(map(chr, np.random.default_rng(0).integers(97, 123, 300_000)))))
    (file,) = Folder(tmp_path, "run").files()
    metadata = pq.read_metadata(file.path)
    assert metadata.num_row_groups > 1
    assert all(
        metadata.row_group(index).total_byte_size < 2 * compaction.GROUP_BYTES
        for index in range(metadata.num_row_groups)
    )


# Whole or not at all


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "run")
    target = folder.name(1, 1, "0" * 32)

    def fail(temporary: Path) -> None:
        temporary.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"), folder.writing(target) as temporary:
        fail(temporary)
    assert [path.name for path in folder.path.iterdir()] == ["run.json"]
    assert json.loads((folder.path / "run.json").read_text()) == {"run": "run"}


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RolloutsUnavailable, match="can't be written"):
        keep(keeper(tmp_path / "file"), 1, rows(2))


def test_what_a_killed_process_had_begun_is_ignored_and_removed_later(tmp_path: Path) -> None:
    one = keeper(tmp_path)
    keep(one, 1, rows(2))
    (file,) = Folder(tmp_path, "run").files()
    young, old = (file.path.parent / f".{file.path.name}.{number}-0" for number in (1, 2))
    for path in (young, old):
        path.write_bytes(b"PAR1 half")
    os.utime(old, (1, 1))
    assert len(everything(tmp_path)) == 2
    one.trim()
    assert young.exists()
    assert not old.exists()


def test_a_file_that_somebody_broke_is_told(tmp_path: Path) -> None:
    keep(keeper(tmp_path), 1, rows(2))
    (file,) = Folder(tmp_path, "run").files()
    file.path.write_bytes(b"PAR1 broken PAR1")
    queries = Queries(tmp_path)
    with pytest.raises(RolloutsUnavailable, match="can't be read"):
        queries.rows("run", Choice(1, 1))
    queries.close()


def test_the_database_reads_nothing_else(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    root, secret = tmp_path / "rollouts", tmp_path / "secret.csv"
    root.mkdir()
    secret.write_text("a,b\n1,2\n")
    queries = Queries(root)
    connection = queries._connected()
    for text in ("FROM read_csv('{0}/secret.csv')", "COPY (SELECT 1) TO '{0}/out.csv'", "INSTALL httpfs"):
        with pytest.raises(duckdb.Error):
            connection.execute(text.format(tmp_path))
    with pytest.raises(duckdb.Error):
        connection.execute("SET enable_external_access = true")
    queries.close()


# Limits


def test_the_oldest_go_first(tmp_path: Path) -> None:
    one = keeper(tmp_path)
    for step in range(6):
        keep(one, step, rows(3), run=f"run {step % 2}")
    files = sorted(scan_all(tmp_path), key=lambda one: one.first)
    for age, file in enumerate(files):
        os.utime(file.path, (1e9 + age, 1e9 + age))
    small = keeper(tmp_path, most_bytes=sum(file.size for file in files[3:]))
    assert small.trim() == 3
    assert sorted(file.first for file in scan_all(tmp_path)) == [3, 4, 5]
    assert small.trim() == 0


def test_old_rows_go(tmp_path: Path) -> None:
    one = keeper(tmp_path)
    for step in range(3):
        keep(one, step, rows(3))
    (old, *_) = Folder(tmp_path, "run").files()
    os.utime(old.path, (time.time() - 3 * 86_400,) * 2)
    aged = Keeper(tmp_path, Sampling(), Redaction(None, None), 2**40, 2.0)
    assert aged.trim() == 1
    assert {row[0] for row in everything(tmp_path)} == {1, 2}


def test_a_merged_file_is_as_old_as_its_newest_rows(tmp_path: Path) -> None:
    one = keeper(tmp_path)
    for step in range(compaction.SMALL_FILES):
        keep(one, step, rows(1))
    for age, file in enumerate(Folder(tmp_path, "run").files()):
        os.utime(file.path, (1e9 + age, 1e9 + age))
    one.tidy("run")
    (merged,) = Folder(tmp_path, "run").files()
    assert merged.written == 1e9 + compaction.SMALL_FILES - 1


# Sampling


def columns(count: int) -> Columns:
    random = np.random.default_rng(count)
    return Columns(
        random.random(count), random.random(count), random.random(count), random.random(count), np.zeros(count, bool)
    )


def test_the_extreme_rows_are_always_among_them() -> None:
    found = columns(1000)
    found.rewards[[10, 11]] = np.nan, np.inf
    found.wrong[[10, 11]] = True
    expected = {10, 11, *np.argsort(found.rewards)[:2], *np.argsort(found.lengths)[-2:]}
    for sampling, step, count in ((Sampling(1, 50), 3, 50), (Sampling(10, 0), 3, None), (Sampling(1, 1), 3, None)):
        chosen = sampling.choose(step, found)
        assert expected <= set(chosen.tolist())
        assert len(chosen) == count or len(chosen) <= 18
        assert (np.diff(chosen) > 0).all()
        assert (chosen == sampling.choose(step, found)).all()


def test_every_so_many_steps_all_are_kept() -> None:
    assert len(Sampling(10, 0).choose(20, columns(100))) == 100
    assert len(Sampling(10, 0).choose(21, columns(100))) < 20
    assert len(Sampling().choose(21, columns(100))) == 100
    assert Sampling(2, 1).choose(1, columns(1)).tolist() == [0]
    assert Sampling(2, 0).choose(1, columns(3)).tolist() == [0, 1, 2]


def test_a_sample_is_measured_as_a_whole(tmp_path: Path) -> None:
    table, _ = decode(ndjson(rows(100)), "", 2**30)
    found = measured(table, None)
    kept = keeper(tmp_path, sampling=Sampling(1, 20)).keep(Step("run", 1, None, 1.7e9, "0" * 32), found)
    assert kept.rows == 20
    assert found.metrics["rollouts/rows"] == 100
    queries = Queries(tmp_path)
    assert {row["row"] for row in queries.rows("run", Choice(1, 1, limit=100))} >= {0, 99}
    queries.close()


# Redaction


def hide_names(text: str) -> str:
    return text.replace("Alice", "A.")


def break_down(text: str) -> str:
    raise RuntimeError(text)


def test_what_must_not_be_kept_is_not_on_the_disk(tmp_path: Path) -> None:
    patterns = tmp_path / "patterns"
    patterns.write_text("# keys\nsk-[a-z0-9]{8,}\n\n(?i)secret\n")
    root = tmp_path / "rollouts"
    one = keeper(root, redaction=Redaction(patterns, f"{__name__}:hide_names"))
    keep(one, 1, [{"response": "Alice says sk-abcdef0123", "prompt": "SECRET sk-short", "ground_truth": "Alice"}])
    queries = Queries(root)
    (row,) = queries.rows("run", Choice(1, 1))
    queries.close()
    assert (row["response"], row["prompt"]) == ("A. says [redacted]", "[redacted] sk-short")
    assert row["ground_truth"] == "A."
    assert row["chars"] == len("Alice says sk-abcdef0123")  # what was measured is the text as it was
    for path in root.rglob("*"):
        assert path.is_dir() or b"Alice" not in path.read_bytes()


def test_a_hook_that_fails_keeps_nothing_and_tells_no_text(tmp_path: Path) -> None:
    one = keeper(tmp_path, redaction=Redaction(None, f"{__name__}:break_down"))
    with pytest.raises(RolloutsUnavailable, match="hook failed") as failed:
        keep(one, 1, rows(2, response="very private"))
    assert "private" not in str(failed.value)
    assert not list(scan_all(tmp_path))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rollout_hook": "no_such_module_here:function"}, "can't be loaded"),
        ({"rollout_hook": "json:nothing"}, "can't be loaded"),
        ({"rollout_hook": "json:__doc__"}, "is no function"),
        ({"rollout_redact": Path("/nowhere/at/all")}, "can't be read"),
    ],
)
def test_a_service_that_could_not_redact_does_not_start(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    settings = Settings(port=0, db=tmp_path / "tocsin.db", rollout_dir=tmp_path / "rollouts", **changes)
    with pytest.raises(StartError, match=problem):
        Service(settings).start()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rollout_dir": Path("/data/run[1]")}, "which mean a pattern"),
        ({"rollout_hook": "os.system"}, "module:function"),
        ({"rollout_hook": "a:b:c"}, "module:function"),
        ({"rollout_every": 0}, "rollout_every"),
        ({"rollout_rows": -1}, "rollout_rows"),
        ({"rollout_days": float("nan")}, "rollout_days"),
        ({"max_rollout_bytes": 0}, "max_rollout_bytes"),
    ],
)
def test_settings_that_cannot_be_meant(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        Settings(**changes)


def test_settings_from_the_environment() -> None:
    found = load(environ={"TOCSIN_ROLLOUT_DIR": "/data", "TOCSIN_ROLLOUT_ROWS": "64", "TOCSIN_ROLLOUT_DAYS": "2.5"})
    assert (found.rollout_dir, found.rollout_rows, found.rollout_days) == (Path("/data"), 64, 2.5)


def test_a_pattern_that_is_none_names_its_line(tmp_path: Path) -> None:
    patterns = tmp_path / "patterns"
    patterns.write_text("fine\n(broken\n")
    with pytest.raises(ValueError, match="line 2: no regular expression"):
        Redaction(patterns, None)
