"""The task that a target asks for, and targets that cannot be predicted."""

import pyarrow as pa
import pyarrow.parquet
import pytest

from lastlayer.tabular.cli.target import infer_task
from tests.helpers.commands import failed, misused


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([1.5, 2.5, 3.5], "regression"),
        ([1, 2, 3], "regression"),
        ([0, 1, 1], "classification"),
        ([True, False, None], "classification"),
        (["a", "b", None], "classification"),
    ],
)
def test_the_task_follows_from_the_target(values, task):
    assert infer_task(pa.chunked_array([values]))[0] == task


def test_decimals_are_numbers_and_nan_is_missing(tmp_path):
    price = pa.array([1, 2, 3, None], pa.float64()).cast(pa.decimal128(10, 2))
    assert infer_task(pa.chunked_array([price]))[0] == "regression"
    flags = pa.chunked_array([pa.array([0.0, 1.0, float("nan"), 1.0])])
    assert infer_task(flags) == ("classification", "two values, from '1' in 2 to '0' in 1 row")


def test_the_rarest_class_is_named_with_its_rows():
    kinds = pa.chunked_array([["a"] * 7 + ["b"] * 3 + ["c" * 50] * 2])
    expected = f"3 classes, from 'a' in 7 to '{'c' * 39}…' in 2 rows"
    assert infer_task(kinds) == ("classification", expected)


def test_text_that_does_not_repeat_is_not_taken_for_classes(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("size,price\n" + "".join(f"{at},{at}a{at}\n" for at in range(40)))
    message = failed(capsys, "fit", str(path), "--target", "price")
    assert "text such as '0a0', with 40 different values in 40 rows" in message
    assert "--task classification" in message


def test_a_target_that_is_mostly_numbers_names_the_rows_that_are_not(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("a,y\n" + "".join(f"{at},{at}%\n" for at in range(9)) + "9,about 9\n")
    message = failed(capsys, "fit", str(path), "--target", "y")
    assert "9 of 10 values are numbers in %; row 10 has 'about 9': correct it" in message
    assert "--task classification" in message


def test_dates_and_lists_are_no_targets(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("a,day\n" + "".join(f"{at},2024-01-0{at % 3 + 1}\n" for at in range(30)))
    for task in ("auto", "classification", "regression"):
        message = failed(capsys, "fit", str(path), "--target", "day", "--task", task)
        assert "dates or times, which cannot be predicted; make them numbers" in message
    pq = tmp_path / "x.parquet"
    pa.parquet.write_table(pa.table({"a": [1, 2], "list": [[1], [2]]}), pq)
    assert "holds list<" in failed(capsys, "fit", str(pq), "--target", "list")
    assert "weights must be numbers" in misused(
        capsys, "fit", str(path), "--target", "a", "--weight", "day"
    )
