"""JSON that restores what it was given, or that any program reads."""

import json
import math
from typing import Any

import numpy as np
import pytest

from lastlayer.tabular.files.codec import dumps, loads

VALUES: list[Any] = [
    {1: 2.5, "a": (True,)},
    None,
    True,
    3,
    0.1,
    math.inf,
    -math.inf,
    "text",
    [1, (2, [3.5])],
    (),
    {"array": [1], "tuple": {"float": "x"}},
    {"tried": [{"nll": math.inf, "epochs": 64}]},
]


@pytest.mark.parametrize("value", VALUES)
def test_values_are_restored_with_their_types(value):
    restored = loads(dumps(value))
    assert restored == value
    assert type(restored) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.5, math.nan, -math.inf]),
        np.array(["a", "bc"]),
        np.array(["a", 1, None, 2.5], object),
        np.array([True, False]),
        np.array([1, 2], np.int32),
        np.zeros((0,)),
    ],
)
def test_arrays_are_restored_with_their_dtype(array):
    restored = loads(dumps({"x": array}))["x"]
    assert restored.dtype == array.dtype
    np.testing.assert_array_equal(restored, array)


def test_nan_is_restored():
    assert math.isnan(loads(dumps(math.nan)))


def test_numbers_of_numpy_become_those_of_python():
    values = {"a": np.int64(1), "b": np.float32(0.5), "c": np.bool_(True), "d": np.float64(2.5)}
    restored = loads(dumps(values))
    assert restored == {"a": 1, "b": 0.5, "c": True, "d": 2.5}
    assert {type(value) for value in restored.values()} == {int, float, bool}


def test_portable_text_is_plain_json_with_null_for_numbers_that_are_not_finite():
    value = {"r2": math.nan, "t": (1, np.float64(math.inf)), "classes": np.array(["a", "b"])}
    text = dumps(value, portable=True)
    assert json.loads(text) == {"r2": None, "t": [1, None], "classes": ["a", "b"]}


@pytest.mark.parametrize("value", [b"bytes", {"$type": "x"}, object(), np.array([b"x"])])
def test_values_that_cannot_be_restored_are_refused(value):
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        dumps(value)


@pytest.mark.parametrize("text", ["NaN", '{"$type": "code"}', "{", '{"$type": "array"}'])
def test_text_that_dumps_did_not_write_is_refused(text):
    with pytest.raises((ValueError, KeyError)):
        loads(text)
