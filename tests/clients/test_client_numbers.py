from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin._numbers import number


def same(one, other):
    return one == other or (math.isnan(one) and math.isnan(other))


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (3, 3.0),
        (True, 1.0),
        (None, math.nan),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        ("1e-3", 0.001),
        (" 0.5\n", 0.5),
        ("5.", 5.0),
        ("NaN", math.nan),
        ("-nan", math.nan),
        ("Infinity", math.inf),
        ("+inf", math.inf),
        ("-Inf", -math.inf),
        ("null", math.nan),
        ("None", math.nan),
        ("True", 1.0),
        ("false", 0.0),
        ("np.True_", 1.0),
        ("np.float64(0.5)", 0.5),
        ("np.float32(nan)", math.nan),
        ("numpy.int64(-3)", -3.0),
        ("tensor(0.1250)", 0.125),
        ("tensor(-inf, device='cuda:0', dtype=torch.bfloat16)", -math.inf),
        ("tensor(2.0000, grad_fn=<MeanBackward0>)", 2.0),
        ("Array(1.5, dtype=float32, weak_type=True)", 1.5),
        ("array(7)", 7.0),
        ("uint8(3)", 3.0),
    ],
)
def test_numbers_in_every_spelling(value, meant):
    assert same(number(value), meant)


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "hello", "1_2", "1,5", "10%", "10/100", "0x10", "--1", "1e", "tensor", "tensor()", "tensor([1.0])"),
        *(
            "datetime(2026, 1, 1)",
            "f(1)",
            "np.float64(1_2)",
            "np.float64(tensor(1))",
            "tensor(1",
            "9" * 201,
            "1" * 10**6,
        ),
        *([], [1.0], {}, {"a": 1}, b"1", 1j, object()),
    ],
)
def test_what_is_no_number(value):
    with pytest.raises(ValueError, match=r"number|convert"):
        number(value)


@given(st.floats())
def test_every_float_survives_its_spellings(value):
    text = repr(value)
    spellings = (text, f" {text} ", text.upper(), f"np.float64({text})", f"tensor({text}, device='cuda:0')")
    assert all(same(number(spelling), value) for spelling in (value, *spellings))


@given(st.integers(-(2**53), 2**53))
def test_every_whole_number_survives(value):
    assert number(value) == number(str(value)) == number(f"np.int64({value})") == value


@given(st.text() | st.from_regex(r"[a-z.]*\([^)]*\)?"))
def test_any_text_is_a_number_or_refused(text):
    with suppress(ValueError):
        assert isinstance(number(text), float)
