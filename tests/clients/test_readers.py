"""Logs as frameworks write them, and what is left of them after a crash."""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import math
import string
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tocsin.readers import ReadError, Vector, read

OURS = """\
{"step": 0, "metrics": {"val-core/openai/gsm8k/acc/mean@1": 0.25}, "time": 1767225600.5, "attempt": 1, "sequence": "0"}
{"step": 1, "metrics": {"actor/kl_loss": NaN, "actor/grad_norm": "Infinity", "critic/score/mean": 0.5}}
"""

VERL = """\
{"step":0,"data":{"val-core/openai/gsm8k/acc/mean@1":0.31}}
{"step":1,"data":{"actor/pg_loss":-0.0123,"actor/grad_norm":null,"training/global_step":1,"batch/lengths":[3,4]}}
"""

PRIME = """\
{"step": 1, "time": 1767225601.25, "loss/mean": 0.02, "optim/lr": 1e-06}
{"step": 1, "time": 1767225602.0, "perf/mfu": 31.5}
{"step": 2, "time": 1767225633.0, "loss/mean": 0.03}
"""

SWIFT = """\
{"loss": 0.01, "grad_norm": 0.5, "kl": 0.0, "epoch": 0.1, "global_step/max_steps": "1/100", "percentage": "1.00%"}
{"loss": 0.02, "grad_norm": 0.4, "kl": 0.001, "epoch": 0.2, "global_step/max_steps": "2/100", "percentage": "2.00%"}
"""

HISTORY = [
    {"epoch": 0.1, "grad_norm": 1.5, "kl": 0.01, "learning_rate": 1e-06, "loss": 0.0, "reward": 0.5, "step": 10},
    {"epoch": 0.1, "eval_reward": 0.25, "eval_runtime": 3.5, "step": 10},
    {"epoch": 0.2, "grad_norm": math.nan, "kl": None, "loss": 0.1, "reward": 0.75, "step": 20},
    {
        "epoch": 0.2,
        "step": 20,
        "total_flos": 1.0,
        "train_loss": 0.05,
        "train_runtime": 60.0,
        "train_samples_per_second": 2.0,
        "train_steps_per_second": 0.5,
    },
]
STATE = {"best_metric": None, "epoch": 0.2, "global_step": 20, "is_world_process_zero": True, "log_history": HISTORY}


@pytest.fixture
def log(tmp_path):
    """Writes a log and gives its path; with a name that says nothing of its format."""

    def write(content, name="log.dat"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def nothing_is_nan(vectors):
    """The same vectors with NaN as None, so that they can be compared."""
    return [
        (v.step, {name: None if math.isnan(value) else value for name, value in v.metrics.items()}, v.time, v.line)
        for v in vectors
    ]


FORMATS = [
    (
        "ours",
        OURS,
        [
            (0, {"val-core/openai/gsm8k/acc/mean@1": 0.25}, 1767225600.5, 1),
            (1, {"actor/kl_loss": None, "actor/grad_norm": math.inf, "critic/score/mean": 0.5}, None, 2),
        ],
        0,
    ),
    (
        "verl",
        VERL,
        [
            (0, {"val-core/openai/gsm8k/acc/mean@1": 0.31}, None, 1),
            (1, {"actor/pg_loss": -0.0123, "actor/grad_norm": None, "training/global_step": 1.0}, None, 2),
        ],
        1,
    ),
    (
        "prime-rl",
        PRIME,
        [
            (1, {"loss/mean": 0.02, "optim/lr": 1e-06}, 1767225601.25, 1),
            (1, {"perf/mfu": 31.5}, 1767225602.0, 2),
            (2, {"loss/mean": 0.03}, 1767225633.0, 3),
        ],
        0,
    ),
    (
        "ms-swift",
        SWIFT,
        [
            (1, {"loss": 0.01, "grad_norm": 0.5, "kl": 0.0, "epoch": 0.1}, None, 1),
            (2, {"loss": 0.02, "grad_norm": 0.4, "kl": 0.001, "epoch": 0.2}, None, 2),
        ],
        2,
    ),
    (
        "list",
        json.dumps([json.loads(line) for line in OURS.splitlines()], indent=1),
        [
            (0, {"val-core/openai/gsm8k/acc/mean@1": 0.25}, 1767225600.5, None),
            (1, {"actor/kl_loss": None, "actor/grad_norm": math.inf, "critic/score/mean": 0.5}, None, None),
        ],
        0,
    ),
    *(
        (
            name,
            text,
            [
                (
                    10,
                    {"epoch": 0.1, "grad_norm": 1.5, "kl": 0.01, "learning_rate": 1e-6, "loss": 0.0, "reward": 0.5},
                    None,
                    None,
                ),
                (10, {"epoch": 0.1, "eval_reward": 0.25, "eval_runtime": 3.5}, None, None),
                (20, {"epoch": 0.2, "grad_norm": None, "kl": None, "loss": 0.1, "reward": 0.75}, None, None),
            ],
            0,
        )
        for name, text in [
            ("trainer-state", json.dumps(STATE, indent=2) + "\n"),
            ("trainer-state-line", json.dumps(STATE)),
            ("log-history", json.dumps(HISTORY)),
        ]
    ),
    (
        "csv",
        'step,actor/kl_loss,"critic/score/mean",note\n1,0.5,,fine\n2,nan,np.float64(0.25),\n\n3,,,\n4,-inf,True,"a\nb"\n',
        [
            (1, {"actor/kl_loss": 0.5}, None, 2),
            (2, {"actor/kl_loss": None, "critic/score/mean": 0.25}, None, 3),
            (4, {"actor/kl_loss": -math.inf, "critic/score/mean": 1.0}, None, 7),
        ],
        2,
    ),
    (
        "tensorboard-csv",
        "Wall time,Step,Value\r\n1767225600.5,3,0.25\r\n1767225601.5,4,0.5\r\n",
        [(3, {"Value": 0.25}, 1767225600.5, 2), (4, {"Value": 0.5}, 1767225601.5, 3)],
        0,
    ),
    (
        "wandb-csv",
        ",_step,training/global_step,_timestamp,kl\n0,0,0,1767225600,0.1\n1,1,1,1767225601,0.2\n",
        [
            (0, {"training/global_step": 0.0, "kl": 0.1}, 1767225600.0, 2),
            (1, {"training/global_step": 1.0, "kl": 0.2}, 1767225601.0, 3),
        ],
        0,
    ),
    ("tsv", "\ufeffiteration\tkl\n5.0\t0.1\n", [(5, {"kl": 0.1}, None, 2)], 0),
    (
        "semicolons",
        "global_step;kl\n5;0.1\nglobal_step;kl\n6;0.2\n",
        [(5, {"kl": 0.1}, None, 2), (6, {"kl": 0.2}, None, 4)],
        0,
    ),
    (
        "csv-without-steps",
        "kl,loss\n0.1,1\n0.2,\n",
        [(0, {"kl": 0.1, "loss": 1.0}, None, 2), (1, {"kl": 0.2}, None, 3)],
        0,
    ),
    ("one-column", "reward\n0.5\n", [(0, {"reward": 0.5}, None, 2)], 0),
    ("lines-without-steps", '{"kl": 0.1}\n{"kl": 0.2}\n', [(0, {"kl": 0.1}, None, 1), (1, {"kl": 0.2}, None, 2)], 0),
    ("durations", '{"step": 1, "time": 3.5, "kl": {"mean": 1}}\n', [(1, {"time": 3.5, "kl/mean": 1.0}, None, 1)], 0),
]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(("content", "vectors", "skipped"), [f[1:] for f in FORMATS], ids=[f[0] for f in FORMATS])
def test_every_format_is_known_by_its_content(log, content, vectors, skipped, packed):
    path = log(gzip.compress(content.encode()) if packed else content)
    reading = read(path)
    assert nothing_is_nan(reading) == vectors
    assert (reading.vectors, reading.skipped) == (len(vectors), skipped)


def test_standard_input_is_read():
    text = (
        "from tocsin.readers import read\nfor v in read('-'): print(v.step, v.metrics)\nimport sys; sys.stdin.close()"
    )
    for data in (PRIME.encode(), gzip.compress(PRIME.encode())):
        done = subprocess.run([sys.executable, "-W", "error", "-c", text], input=data, capture_output=True, check=True)
        assert done.stdout.decode().splitlines()[1] == "1 {'perf/mfu': 31.5}"


@pytest.mark.parametrize("content", [OURS, VERL, PRIME, "step,kl,loss\n1,0.5,1\n2,0.6,2\n3,0.7,3\n"])
def test_a_torn_last_line_is_left_out_with_a_warning(log, caplog, content):
    whole = list(read(log(content)))
    torn = content.rstrip()[:-4].rstrip(",")
    assert nothing_is_nan(read(log(torn))) == nothing_is_nan(whole[:-1])
    [message] = caplog.messages
    assert f"log.dat:{content.count(chr(10))}: " in message


def test_a_gzip_file_that_was_cut_off_gives_what_it_still_has(log, caplog):
    lines = "".join(f'{{"step": {i}, "metrics": {{"x": {math.sin(i)!r}}}}}\n' for i in range(5000))
    vectors = list(read(log(gzip.compress(lines.encode())[:-2000])))
    assert 1000 < len(vectors) < 5000
    assert [v.step for v in vectors] == list(range(len(vectors)))
    assert any("in the middle of its gzip data" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ("", None, "is empty"),
        ("\n \n", None, "is empty"),
        (OURS + '{"step": 2, "met\n' + OURS, 3, "is no JSON"),
        ('{"step": 2, "met\n' + OURS, 1, "is no JSON"),
        (OURS + "[1]\n" + OURS, 3, "is a list, where an object was expected"),
        (OURS + '{"step": 3}\n', 3, "has no object under 'metrics'"),
        (OURS + '{"metrics": {"x": 1}}\n', 3, "has no step"),
        (PRIME + '{"loss": 1}\n', 4, "has no step"),
        ('{"step": -1, "x": 1}\n', 1, "has the step -1, which is no whole number >= 0"),
        ('{"step": 1.5, "x": 1}\n', 1, "has the step 1.5"),
        ('{"step": null, "x": 1}\n', 1, "has the step None"),
        ('{"step": true, "x": 1}\n', 1, "has the step True"),
        ('{"step": [], "x": 1}\n', 1, "has the step []"),
        ('{"step": 1, "metr', 1, "is neither JSON lines nor one JSON document"),
        (json.dumps(STATE, indent=2)[:-100], 35, "is neither JSON lines nor one JSON document"),
        ("[1, 2]", None, "item 0 of its list is a int"),
        (json.dumps(HISTORY) + "\n{}\n{}\n", 2, "follows the JSON list"),
        ('{"log_history": [3]}', None, "log_history[0] is a int"),
        ('{"log_history": []}', None, "has no step with a number in it"),
        ("[" * 100_000, 1, "nested too deeply"),
        ("7\n8\n", 1, "is neither JSON nor CSV with a header"),
        ("hello world\n", None, "has no step with a number in it"),
        ("step,kl\n", None, "has no step with a number in it"),
        ("step,kl\n1,fine\n", None, "has no step with a number in it (1 values were no numbers)"),
        ("step,kl\n1,2,3\n4,5\n", 2, "has 3 cells where the header has 2"),
        ("step,kl\n1\n4,5\n", 2, "has 1 cells where the header has 2"),
        ("step,kl\n,2\n4,5\n", 2, "has no step"),
        ("step,kl\n1," + "9" * 200_000 + "\n", 2, "is no CSV"),
        (b"PAR1\x00\x15\x04\n\x00", None, "is no text"),
        (b"\x1f\x8bnot gzip", 1, "can't be read"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(log, content, line, problem):
    path = log(content)
    with pytest.raises(ReadError) as caught:
        list(read(path))
    assert (caught.value.path, caught.value.line) == (str(path), line)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: " if line else f"{path}: ")


def test_what_is_no_file_is_said(tmp_path):
    with pytest.raises(ReadError, match="can't be opened"):
        next(read(tmp_path / "missing"))
    with pytest.raises(ReadError, match="a folder without a log"):
        read(tmp_path)


def test_broken_lines_can_be_left_out(log, caplog):
    content = '{"step": 9, "met\n' + OURS + '{"step": 2, "m{"step": 3}\n[]\n' + OURS + '{"metrics": {}}\n'
    vectors = list(read(log(content), skip_broken=True))
    assert [(v.step, v.line) for v in vectors] == [(0, 2), (1, 3), (0, 6), (1, 7)]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 4
    assert [v.step for v in read(log("step,x\n1,1\n2\n3,3\n"), skip_broken=True)] == [1, 3]


def test_a_log_is_read_as_it_is_asked_for(log):
    reading = read(log(OURS + "garbage\n" + OURS))
    assert next(reading) == Vector(0, {"val-core/openai/gsm8k/acc/mean@1": 0.25}, 1767225600.5, 1)
    assert next(reading).step == 1
    with pytest.raises(ReadError):
        next(reading)


names = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=20
).filter(str.isprintable)
plain_names = st.tuples(
    st.text(string.ascii_lowercase, min_size=1, max_size=5),
    st.lists(st.text(string.ascii_lowercase + string.digits + "@_", min_size=1, max_size=5), min_size=1, max_size=3),
).map(lambda parts: "/".join([parts[0], *parts[1]]))
steps = st.integers(0, 2**50)


def rows_of(name):
    return st.lists(
        st.tuples(steps, st.dictionaries(name, st.floats(), min_size=1, max_size=5)), min_size=1, max_size=20
    )


def as_table(rows):
    columns = sorted({name for _, metrics in rows for name in metrics})
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["step", *columns])
    for step, metrics in rows:
        writer.writerow([step, *(metrics.get(name, "") for name in columns)])
    return text.getvalue()


WRITERS = {
    "ours": lambda rows: "".join(json.dumps({"step": step, "metrics": metrics}) + "\n" for step, metrics in rows),
    "verl": lambda rows: "\n".join(json.dumps({"data": metrics, "step": step}) for step, metrics in rows),
    "list": lambda rows: json.dumps([{"step": step, "metrics": metrics} for step, metrics in rows], indent=2),
    "flat": lambda rows: "\r\n".join(json.dumps({"step": step, **metrics}) for step, metrics in rows),
    "state": lambda rows: json.dumps({"log_history": [{**metrics, "step": step} for step, metrics in rows]}, indent=2),
    "table": as_table,
}


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), packed=st.booleans())
def test_what_was_written_is_read(log, form, data, packed):
    rows = data.draw(rows_of(names if form in {"ours", "verl", "list"} else plain_names))
    content = WRITERS[form](rows).encode()
    vectors = list(read(log(gzip.compress(content) if packed else content)))
    assert len(vectors) == len(rows)
    for vector, (step, metrics) in zip(vectors, rows, strict=True):
        assert vector.step == step
        assert vector.metrics.keys() == metrics.keys()
        for name, value in metrics.items():
            assert vector.metrics[name] == value or (math.isnan(value) and math.isnan(vector.metrics[name]))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode), st.booleans())
def test_any_file_is_read_or_refused(log, content, skip_broken):
    path = log(content)
    with suppress(ReadError):
        assert all(vector.step >= 0 for vector in read(path, skip_broken=skip_broken))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from([OURS, VERL, PRIME, SWIFT, "step,kl,x\n10,0.5,1\n20,0.75,2\n"]), st.integers(1, 300))
def test_a_log_torn_anywhere_gives_its_whole_lines(log, content, length):
    whole = nothing_is_nan(read(log(content)))
    torn = content[:length]
    try:
        found = nothing_is_nan(read(log(torn)))
    except ReadError:
        assert torn.count("\n") <= content.startswith("step")
    else:
        complete = torn.count("\n")
        assert [vector for vector in found if vector[3] <= complete] == [v for v in whole if v[3] <= complete]
