"""The quick reading of JSON is the strict reading: the same value, to the last bit, or the same error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tocsin_service.receiving import json_texts
from tocsin_service.receiving.json_texts import JsonError

names = st.sampled_from(["step", "metrics", "loss", "a:b", "", "é", "\U0001f514"]) | st.text(max_size=6)
numbers = (
    st.floats().map(json.dumps)  # NaN, Infinity and -0.0 too
    | st.integers(-(10**25), 10**25).map(str)
    | st.sampled_from(["-0", "-0.0", "1e400", "-1e400", "1e-400", "-1e-400", "9" * 400, "-" + "9" * 19, "2e19", "1E5"])
    | st.sampled_from([str(2**63 + off) for off in (-1, 0, 1)] + [str(-(2**63) - 1), str(2**64), "0" * 3, "1.", "+1"])
)
strings = (st.text(max_size=6) | st.sampled_from([":", "\ud800", "\udcff", "\u2028"])).flatmap(
    lambda text: st.sampled_from([json.dumps(text), json.dumps(text, ensure_ascii=False)])
)
scalars = numbers | strings | st.sampled_from(["true", "false", "null", "nan", "NaN", "", "[]", "{}", "\x00"])


def lists(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=4).map(lambda items: f"[{', '.join(items)}]")


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(names.map(json.dumps), values).map(": ".join)
    return st.lists(pairs, max_size=4).map(lambda members: f"{{{', '.join(members)}}}")


texts = st.recursive(scalars, lambda inner: lists(inner) | objects(inner), max_leaves=12)
vectors = objects(scalars | objects(numbers) | objects(scalars))
bodies = st.tuples(
    st.sampled_from(["", " ", "\n", "\ufeff", "\xa0"]),
    texts | vectors | lists(vectors),
    st.sampled_from(["", " \t\r\n", "\x0b", "}", ",", "\x00"]),
).map("".join)


def outcome(read: Any, text: str) -> str:
    """What comes of reading; repr tells -0.0 from 0.0 and from 0, and the order of keys."""
    try:
        return repr(read(text))
    except JsonError as error:
        return f"refused: {error}"


@given(text=bodies)
@example(text='{"step": 1, "metrics": {"loss": 0.5, "loss": 0.5}}')
@example(text='{"step": 1, "metrics": {"loss": 0.5, "loss": "a:b"}}')
@example(text='[{"step": 1}, {"step": 1, "step": 2}]')
@example(text='{"step": 99999999999999999999, "metrics": {"loss": -0}}')
@example(text="[" * 100_000)
@example(text='{"a":' * 50 + "1" + "}" * 50)
@example(text='{"a":' * 900 + "1" + "}" * 900)
def test_both_ways_of_reading_agree(text: str) -> None:
    assert outcome(json_texts.parse, text) == outcome(json_texts.parse_strictly, text)


@given(text=st.text(max_size=30))
def test_they_agree_on_any_text(text: str) -> None:
    assert outcome(json_texts.parse, text) == outcome(json_texts.parse_strictly, text)


@pytest.mark.parametrize("text", ['{"step": 1, "metrics": {"loss": 0.5, "reward": 2}}', '[{"step": 1, "metrics": {}}]'])
def test_what_trainers_send_is_read_the_quick_way(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(json_texts, "parse_strictly")
    assert json_texts.parse(text) == json.loads(text)
