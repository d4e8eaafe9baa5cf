"""Frames as codes."""

import datetime as dt
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lastlayer.tabular.columns import Column, Columns

VALUES = {
    "age": [30, 41, None, 25],
    "town": ["Ulm", None, "Bonn", "Ulm"],
    "member": [True, False, True, True],
    "since": [dt.date(1970, 1, 3), dt.date(1970, 1, 1), None, dt.date(1970, 1, 2)],
    "name": ["a", "b", "c", "d"],
    "unit": ["m", "m", "m", "m"],
    "nothing": [None, None, None, None],
}


NAN = np.nan


def frames():
    yield pytest.param(pl.DataFrame(VALUES), id="polars")
    pandas = pd.DataFrame(VALUES)
    pandas["since"] = pd.to_datetime(pandas["since"])
    yield pytest.param(pandas, id="pandas")
    yield pytest.param(pandas.astype({"town": "category"}), id="pandas-category")
    yield pytest.param(pandas.convert_dtypes(), id="pandas-nullable")
    objects = pandas.astype({"town": object, "age": object})
    yield pytest.param(objects.where(objects.notna(), pd.NA), id="pandas-objects")


@pytest.mark.parametrize("frame", list(frames()))
def test_columns_are_numbers_dates_categories_or_ignored(frame):
    columns = Columns.of(frame)
    assert [column.kind for column in columns.columns] == [
        *("number", "category", "number", "date", "category", "ignored", "ignored"),
    ]
    assert columns.columns[1].levels == ("Ulm", "Bonn")  # the most frequent first


@pytest.mark.parametrize("frame", list(frames()))
def test_codes_are_values_days_and_levels_with_nan_for_missing_values(frame):
    codes = Columns.of(frame).codes(frame)
    expected = [
        [30, 0, 1, 2, 0],
        [41, NAN, 0, 0, 1],
        [NAN, 1, 1, NAN, 2],
        [25, 0, 1, 1, 3],
    ]
    np.testing.assert_array_equal(codes, expected)


def test_a_new_level_has_the_code_minus_one_and_is_reported():
    columns = Columns.of(pl.DataFrame({"town": ["Ulm", "Ulm", "Bonn"]}))
    new = pl.DataFrame({"town": ["Köln", "Bonn", None]})
    np.testing.assert_array_equal(columns.codes(new), [[-1], [1], [NAN]])
    assert columns.new_levels(new) == {"town": ["Köln"]}


def test_integers_beside_missing_values_stay_the_same_categories():
    columns = Columns([Column("size", "category", ("1", "2"))])
    for values in ([1, 2, None], [1.0, 2.0, None], ["1", "2", None]):
        codes = columns.codes(pl.DataFrame({"size": values}))
        np.testing.assert_array_equal(codes, [[0], [1], [NAN]])


def test_text_of_which_few_values_repeat_is_ignored_but_a_category_with_rare_levels_is_not():
    comments = [f"comment {at}" for at in range(100)] + ["thanks"] * 60 + ["hello"] * 39
    shops = [f"shop {at}" for at in range(100)] + ["north"] * 60 + ["south"] * 41
    columns = Columns.of(pd.DataFrame({"comment": [*comments, None, None], "shop": shops}))
    assert [column.kind for column in columns.columns] == ["ignored", "category"]
    assert columns.columns[0].note == "text, 102 different values"


@pytest.mark.parametrize(
    ("levels", "rows", "known"), [(40, 10, 40), (40, 9, 32), (300, 10, 256), (20, 2, 20)]
)
def test_levels_beyond_the_first_need_enough_rows(levels, rows, known):
    texts = [f"level {at:03}" for at in range(levels)] * rows
    column = Columns.of(pd.DataFrame({"a": texts})).columns[0]
    assert column.levels == tuple(texts[:known])
    assert column.note == (
        ""
        if known == levels
        else f"{levels} different values; the {known} most frequent have their own level"
    )
    half = np.full(len(texts), 0.5)  # two such rows count as one
    column = Columns.of(pd.DataFrame({"a": texts}), half).columns[0]
    assert len(column.levels) == min(levels, 32)


def test_text_that_hardly_repeats_is_ignored_and_rare_levels_are_one():
    texts = {"x": [f"note {at}" for at in range(100)], "y": range(100)}
    assert Columns.of(pl.DataFrame(texts)).columns[0].kind == "ignored"

    many = [f"level {at // 2:02d}" for at in range(100)]
    column = Columns.of(pl.DataFrame({"x": many})).columns[0]
    assert len(column.levels) == 32
    assert "50 different values" in column.note


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_integers_too_long_for_a_float_are_the_nearest_one(kind):
    values = [2**53 + 1, 2**62 + 1, None, 7]
    expected = [[float(2**53)], [float(2**62)], [NAN], [7.0]]
    arrow = pa.table({"x": pa.array(values, kind)})
    for frame in (arrow, arrow.to_pandas(types_mapper=pd.ArrowDtype), pl.from_arrow(arrow)):
        np.testing.assert_array_equal(Columns.of(frame).codes(frame), expected)


@pytest.mark.parametrize("values", [[0.0, 3.5, NAN, 0.0], [0, 3, 0, 0], [False, True, False, True]])
def test_sparse_numbers_of_pandas_are_numbers(values):
    frame = pd.DataFrame({"x": pd.arrays.SparseArray(values)})
    columns = Columns.of(frame)
    assert columns.columns[0].kind == "number"
    np.testing.assert_array_equal(columns.codes(frame)[:, 0], np.array(values, float))


def test_sparse_texts_of_pandas_are_categories():
    frame = pd.DataFrame({"x": pd.arrays.SparseArray(["a", "b", "a"], fill_value="a")})
    np.testing.assert_array_equal(Columns.of(frame).codes(frame), [[0], [1], [0]])


@pytest.mark.parametrize("kind", [list, np.array])
def test_lists_and_arrays_are_categories(kind):
    for values in ([[1, 2], [3], [1, 2], None], [[1, 2], [3, 4], [1, 2], None]):
        frame = pd.DataFrame({"x": [value and kind(value) for value in values]})
        columns = Columns.of(frame)
        assert columns.columns[0].kind == "category"
        np.testing.assert_array_equal(columns.codes(frame), [[0], [1], [0], [NAN]])


EAST = dt.timezone(dt.timedelta(hours=6))


@pytest.mark.parametrize(
    "values",
    [
        [dt.date(1970, 1, 3), None, dt.date(1970, 1, 1)],
        [dt.datetime(1970, 1, 3), pd.NaT, dt.date(1970, 1, 1)],
        [dt.datetime(1970, 1, 3, 6, tzinfo=EAST), NAN, dt.datetime(1970, 1, 1, 6, tzinfo=EAST)],
        pd.PeriodIndex(["1970-01-03", None, "1970-01-01"], freq="D"),
    ],
)
def test_dates_that_are_objects_are_dates(values):
    kind = object if isinstance(values, list) else None
    frame = pd.DataFrame({"day": pd.Series(values, dtype=kind)})
    columns = Columns.of(frame)
    assert columns.columns[0].kind == "date"
    np.testing.assert_array_equal(columns.codes(frame), [[2], [NAN], [0]])


def test_dates_among_texts_are_texts():
    frame = pd.DataFrame({"day": [dt.date(1970, 1, 3), "soon", "soon"]})
    assert Columns.of(frame).columns[0].levels == ("soon", "1970-01-03")
    columns = Columns.of(frame.assign(day=[dt.date(1970, 1, at) for at in (1, 2, 3)]))
    with pytest.raises(ValueError, match="'day' must hold dates, as in training, got"):
        columns.codes(frame)


def test_a_table_without_a_useful_column_says_why():
    with pytest.raises(ValueError, match="'unit' is always the same"):
        Columns.of(pl.DataFrame({"unit": ["m", "m"]}))


def test_infinity_is_refused_with_its_column():
    with pytest.raises(ValueError, match="'x' holds infinity"):
        Columns.of(pl.DataFrame({"x": [1.0, float("inf")]}))


def test_a_missing_column_and_text_among_numbers_are_named():
    columns = Columns.of(pl.DataFrame({"x": [1.0, 2.0], "z": [1, 2]}))
    with pytest.raises(ValueError, match="lacks 'z'"):
        columns.codes(pl.DataFrame({"x": [1.0]}))
    with pytest.raises(ValueError, match="'x' must hold numbers, as in training, got"):
        columns.codes(pl.DataFrame({"x": ["1", "many"], "z": [1, 2]}))


def test_columns_survive_json():
    columns = Columns.of(pl.DataFrame(VALUES))
    again = Columns.from_json(json.loads(json.dumps(columns.to_json())))
    assert again.columns == columns.columns


def test_weights_of_rows_are_repetitions_in_columns_too():
    frame = pd.DataFrame({"town": list("abcccd"), "code": list("uvwxyz")})
    weight = np.array([1.0, 3.0, 1.0, 1.0, 0.0, 0.0])
    repeated = Columns.of(frame.iloc[[0, 1, 1, 1, 2, 3]])
    assert Columns.of(frame, weight).columns == repeated.columns
    assert repeated.columns[0].levels == ("b", "c", "a")


def test_small_weights_leave_categories_as_they_are():
    frame = pd.DataFrame({"town": [f"town {at % 8}" for at in range(300)], "x": range(300)})
    plain = Columns.of(frame).columns
    assert plain[0].kind == "category"
    for weight in (1 / 300, 0.3, 1.0, 2.0):
        assert Columns.of(frame, np.full(300, weight)).columns == plain


def test_a_typo_among_numbers_of_a_frame_is_warned_of():
    values = [f"{at}.5" for at in range(60)]
    values[7] = "12..3"
    message = "column 'a' is read as text: 59 of 60 values are numbers; row 8 has '12..3'"
    with pytest.warns(UserWarning, match=message):
        columns = Columns.of(pd.DataFrame({"a": values, "b": range(60)}))
    assert columns.columns[0].kind == "ignored"
    assert "row 8 has '12..3'" in columns.columns[0].note
