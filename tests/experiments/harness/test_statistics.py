"""Means, standard errors, marks and differences."""

import math

import pytest

from experiments.harness.statistics import Estimate, Published, difference, estimate, marked
from experiments.harness.tables import ranges, show, show_change, signed, table


def test_mean_and_standard_error_follow_their_definitions() -> None:
    # Variance of 1, 2, 3, 4 with n − 1: 5 / 3.
    assert estimate([1.0, 2.0, 3.0, 4.0]) == pytest.approx((2.5, math.sqrt(5 / 3 / 4)))
    assert math.isnan(estimate([2.0]).stderr)
    assert math.isnan(estimate([1.0, math.nan]).mean)


def test_methods_equal_in_the_printed_digits_are_marked_together() -> None:
    cells = {"a": Estimate(1.001, 0.0), "b": Estimate(1.004, 0.0), "c": Estimate(1.006, 0.0)}
    assert marked(cells, ["a", "b", "c"], 2) == {"a", "b"}
    assert marked(cells, ["b"], 2) == {"a", "b"}  # a, of several passes, is as good
    assert marked(cells, ["c"], 2) == {"a", "b", "c"}
    assert marked(cells | {"d": Estimate(math.nan, math.nan)}, ["c"], 2) == {"a", "b", "c"}


def test_differences_are_in_the_papers_and_in_combined_standard_errors() -> None:
    found = difference(Estimate(2.65, 0.03), Estimate(2.55, 0.04))
    assert found == pytest.approx((0.1, 2.5, 2.0))
    assert difference(Estimate(1.0, 0.0), Estimate(2.0, 0.0)).in_published == -math.inf


def test_marks_follow_the_direction_of_the_metric() -> None:
    cells = {"a": Estimate(0.95, 0.01), "b": Estimate(0.945, 0.01), "c": Estimate(0.90, 0.01)}
    assert marked(cells, ["a", "b", "c"], 3, higher_is_better=True) == {"a", "b"}
    assert marked(cells, ["a", "b", "c"], 3) == {"c"}
    assert marked(cells, ["a"], 3, higher_is_better=True) == {"a"}  # better than several passes


def test_suspected_misprints_are_not_certain() -> None:
    cells = {("a", "x", "error"): Estimate(1.0, 0.1), ("a", "y", "error"): Estimate(2.0, 0.1)}
    published = Published(cells, {("a", "y", "error"): "a digit too many"})
    assert set(published.certain) == {("a", "x", "error")}


def test_changes_are_of_the_seeds_that_both_have() -> None:
    # Differences 0.1 and 0.5: mean 0.3, standard error 0.2; then 1 and 1, beyond two.
    assert show_change({0: 1.0, 1: 1.0, 2: 9.0}, {0: 1.1, 1: 1.5}) == "+0.30\u00a0±\u00a00.20"
    assert show_change({0: 1.0, 1: 1.0}, {0: 2.0, 1: 2.0}) == "**+1.00\u00a0±\u00a00.00**"
    assert show_change({0: 1.0}, {1: 2.0}) == "–"
    assert show(Estimate(1.0, math.nan)) == "1.00"


def test_short_rows_of_a_table_are_filled_up() -> None:
    lines = table(["", "value"], [["a", "1"], ["*group*"]]).splitlines()
    assert lines[1] == "| :------ | ----: |"
    assert {line.count("|") for line in lines} == {3}


def test_small_texts_read_well() -> None:
    assert [signed(value) for value in (0.04, -0.04, -1.25, math.inf, math.nan)] == [
        "0.0",
        "0.0",
        "−1.2",
        "+∞",
        "nan",
    ]
    assert ranges([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
