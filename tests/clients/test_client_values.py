"""Whatever a trainer passes: nothing is raised into it, numbers arrive, the rest is counted and named once."""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tocsin
from tocsin._settings import _FROM_ENVIRONMENT, Options
from tocsin._values import MOST_METRICS, _hold_each, hold, numbers


class Tensor:
    """Behaves like a device tensor; tells which thread read it."""

    def __init__(self, value, count=1):
        self.value = value
        self.count = count
        self.read_by = None

    def numel(self):
        return self.count

    def detach(self):
        return self

    def clone(self):
        copy = Tensor(self.value, self.count)
        copy.original = self
        return copy

    def item(self):
        self.original.read_by = threading.current_thread().name
        return self.value


class Hostile:
    def __float__(self):
        raise OSError("no number today")

    def __str__(self):
        raise OSError("no text either")


class Array:
    def __init__(self, size):
        self.size = size

    def item(self):
        return 2.5


class Sharded:
    """A tensor spread over ranks: reading it asks all of them."""

    class Placement:
        def __init__(self, *, replicated):
            self.replicated = replicated

        def is_replicate(self):
            return self.replicated

    def __init__(self, *, replicated):
        self.placements = [self.Placement(replicated=replicated)]

    def to_local(self):
        return Array(1)

    def item(self):
        raise AssertionError("a collective operation in a background thread")


def sent(metrics):
    held, _ = hold(metrics)
    return numbers(held)


def test_numbers_of_every_kind_are_understood():
    found, refused = sent(
        {
            "int": 3,
            "float": 0.5,
            "bool": True,
            "none": None,
            "text": "1e-3",
            "printed": "np.float64(0.25)",
            "decimal": Decimal("0.1"),
            "fraction": Fraction(1, 4),
            "scalar": Array(1),
            "replicated": Sharded(replicated=True),
            "huge": 10**5000,
        }
    )
    assert not refused
    assert math.isnan(found.pop("none"))
    assert found == {
        "int": 3.0,
        "float": 0.5,
        "bool": 1.0,
        "text": 0.001,
        "printed": 0.25,
        "decimal": 0.1,
        "fraction": 0.25,
        "scalar": 2.5,
        "replicated": 2.5,
        "huge": math.inf,
    }


def test_what_is_no_single_number_is_refused_with_its_kind_and_not_kept():
    held, _ = hold(
        {
            "list": [1.0],
            "array": Array(4),
            "tensor": Tensor(1.0, count=9),
            "word": "hello",
            "long": "1" * 1000,
            "bytes": b"1",
            "complex": 1j,
            "hostile": Hostile(),
            "sharded": Sharded(replicated=False),
            "none": {"deep": [None]},
        }
    )
    found, refused = numbers(held)
    assert found == {}
    assert refused == {
        "list": "list is no single number",
        "array": "Array is no single number",
        "tensor": "Tensor is no single number",
        "word": "str is no single number",
        "long": "a text this long is no number",
        "bytes": "bytes is no single number",
        "complex": "complex is no single number",
        "hostile": "Hostile is no single number",
        "sharded": "it is a sharded tensor: log its full_tensor()",
        "none/deep": "list is no single number",
    }
    assert not any(isinstance(value, (list, bytes, Tensor, Sharded)) for value in held.values())


def test_mappings_are_flattened_and_keys_become_texts():
    found, _ = sent({"a": {"b": {"c": 1}, 2: 3}, ("x", 1): 4, None: 5})
    assert found == {"a/b/c": 1, "a/2": 3, "('x', 1)": 4, "None": 5}
    found, _ = sent({Hostile(): 1})
    assert found == {"(Hostile)": 1}


@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb", "a\0", "\ud800"])
def test_a_name_that_the_server_refuses_costs_its_metric_and_not_the_vector(name):
    found, refused = sent({name: 1, "x": 2})
    assert found == {"x": 2}
    assert refused == {name: "a metric's name has 1 to 256 printable characters"}


def test_mappings_that_contain_themselves_end():
    knot = {"x": 1}
    for i in range(50):
        knot[f"me{i}"] = knot
    held, _ = hold(knot)
    assert len(held) == MOST_METRICS + 1


def test_a_tensor_is_read_by_the_background_thread_and_may_change_afterwards(server, connect):
    tensor = Tensor(1.5)
    run = connect(url=server.url)
    run.log({"loss": tensor}, 1)
    tensor.value = 99.0
    assert run.finish(30)
    assert server.vectors[0]["metrics"] == {"loss": 1.5}
    assert tensor.read_by == "tocsin-sender"


def test_a_dict_that_changes_after_the_call_is_sent_as_it_was(server, connect):
    metrics = {"a": 1, "in": {"b": 2}}
    run = connect(url=server.url)
    run.log(metrics, 1)
    metrics["a"] = metrics["in"]["b"] = 99
    metrics["new"] = 1
    assert run.finish(30)
    assert server.vectors[0]["metrics"] == {"a": 1, "in/b": 2}


def test_skipped_values_are_counted_and_named_once(server, connect, caplog):
    run = connect(url=server.url)
    for step in range(5):
        run.log({"x": 1, "hist": [1, 2], "bad": Hostile()}, step)
    assert run.finish(30)
    assert run.stats()["skipped"] == 10
    assert run.stats()["delivered"] == 5
    assert [
        message for message in caplog.messages if "'hist' is skipped: list is no single number" in message
    ] == caplog.messages[:1]
    assert len(caplog.messages) == 3
    assert caplog.messages[-1].endswith("5 of 5 vectors delivered; 10 values skipped")


def test_names_said_are_bounded(server, connect, caplog):
    run = connect(url=server.url)
    run.log({f"text{i}": "x" for i in range(5000)}, 1)
    assert run.finish(30)
    assert run.stats()["skipped"] == 5000
    assert len(caplog.messages) <= 102


@pytest.mark.parametrize("step", [-1, 1.5, "7", math.nan, [1], Hostile(), b"1"])
def test_a_step_that_is_none_is_counted_as_dropped(server, connect, step):
    run = connect(url=server.url)
    run.log({"x": 1}, step)
    run.log({"x": 1}, 5)
    assert not run.finish(30)
    assert run.stats()["dropped"] == {"invalid": 1}
    assert server.steps() == [5]


@pytest.mark.parametrize("step", [7, 7.0, Tensor(7).clone(), True])
def test_steps_of_any_integer_type_are_taken(server, connect, step):
    run = connect(url=server.url)
    run.log({"x": 1}, step)
    assert run.finish(30)
    assert server.steps() == [int(getattr(step, "value", step))]


@pytest.mark.parametrize("time", ["yesterday", math.nan, Hostile()])
def test_a_time_that_is_none_is_replaced_by_that_of_the_call(server, connect, time):
    run = connect(url=server.url)
    run.log({"x": 1}, 1, time=time)
    assert run.finish(30)
    assert server.vectors[0]["time"] > 1e9


def test_more_metrics_than_a_vector_may_have_are_refused_as_a_whole(server, connect):
    run = connect(url=server.url)
    run.log({f"m{i}": 1 for i in range(MOST_METRICS + 1)}, 1)
    run.log({"x": 1}, 2)
    assert not run.finish(30)
    assert run.stats()["dropped"] == {"too_large": 1}
    assert server.steps() == [2]


@pytest.mark.parametrize("metrics", [None, 7, "x", [("a", 1)], Hostile()])
def test_a_call_without_a_mapping_is_said_once_and_counted(dead, connect, caplog, monkeypatch, metrics):
    monkeypatch.setattr("tocsin._guard._said", set())
    run = connect(url=dead)
    with pytest.raises(ValueError, match="takes a mapping"):
        run.log(metrics, 1)
    monkeypatch.setenv("TOCSIN_DEBUG", "0")
    run.log(metrics, 1)
    run.log(metrics, 1)
    assert run.stats()["dropped"] == {"invalid": 3}
    assert len(caplog.messages) == 1
    assert caplog.records[0].exc_info is False or caplog.records[0].exc_info is None


@pytest.mark.parametrize(
    "options",
    [{"url": "ftp://x"}, {"url": "nonsense"}, {"url": 7}, {"url": "http://x:99999"}, {"token": "a\nb"}, {"config": 7}],
)
def test_faulty_settings_are_said_once_and_never_raised(caplog, connect, monkeypatch, options):
    with pytest.raises((ValueError, TypeError, AttributeError)):
        connect(**options)
    monkeypatch.setenv("TOCSIN_DEBUG", "0")
    monkeypatch.setattr("tocsin._guard._said", set())
    run = connect(**options)
    run.log({"x": 1}, 1)
    run.log({"x": 1}, 2)
    assert not run.finish()
    assert run.alerts() == []
    assert run.dropped == 2
    assert len(caplog.messages) == 3


def test_unknown_options_are_named_and_ignored(dead, connect, caplog, monkeypatch):
    with pytest.raises(ValueError, match="timeot"):
        connect(url=dead, timeot=3)
    monkeypatch.setenv("TOCSIN_DEBUG", "0")
    assert connect(url=dead, timeot=3).url == dead
    assert "timeot" in caplog.messages[0]


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ("exp/grpo\\7b\n", "exp_grpo_7b_"),
        ("..", "__"),
        ("x" * 200, "x" * 128),
        ("日本 1", "日本 1"),
        ("\ud800", "_"),
        (12, "12"),
    ],
)
def test_run_ids_are_made_acceptable(connect, caplog, given, accepted):
    assert connect(given).id == accepted
    assert len(caplog.messages) == (0 if str(given) == accepted else 1)


@pytest.mark.parametrize("given", [None, "", "  "])
def test_a_run_without_a_name_gets_one(connect, given):
    assert len(connect(given).id) > 10


def test_credentials_in_the_address_are_not_shown(connect):
    assert connect(url="https://user:secret@host/base/").url == "https://host:443/base"


def test_a_logging_handler_may_itself_log_metrics(server, connect):
    run = connect(url=server.url)

    class Counting(logging.Handler):
        def emit(self, _):
            run.log({"warnings": 1})

    handler = Counting()
    logging.getLogger("tocsin").addHandler(handler)
    try:
        run.log({"x": [1], "y": 1}, 0)
        server.wait(lambda s: len(s.vectors) == 2)
    finally:
        logging.getLogger("tocsin").removeHandler(handler)
    assert run.finish(30)


def test_every_option_and_variable_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    known = {f"`{option.name}`" for option in fields(Options)}
    known |= {f"`TOCSIN_{name.upper()}`" for name in _FROM_ENVIRONMENT}
    assert {name for name in known if f"| {name} |" not in text} == set()


def test_the_public_names_are_these():
    names = ["Run", "finish", "init", "log", "log_rollouts", "log_tensors", "should_checkpoint", "should_stop"]
    assert tocsin.__all__ == names


@given(
    st.dictionaries(
        st.text(max_size=5) | st.integers(),
        st.floats()
        | st.integers()
        | st.none()
        | st.booleans()
        | st.text(max_size=3)
        | st.lists(st.floats(), max_size=2),
        max_size=6,
    )
)
def test_the_quick_way_to_hold_metrics_holds_the_same(metrics: dict[Any, Any]) -> None:
    assert repr(hold(metrics)) == repr(_hold_each(metrics))
