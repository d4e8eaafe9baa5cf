"""Permutation importance and partial dependence of known functions, and on the page."""

import re

import numpy as np
import pytest
import torch

from lastlayer.sklearn import LastLayerClassifier, LastLayerRegressor
from lastlayer.tabular.columns import Column
from lastlayer.tabular.encoding import Encoding
from lastlayer.tabular.report import influence
from lastlayer.tabular.report.effects import (
    grid,
    partial_dependence,
    permutation_importance,
    shuffling_slope,
)
from tests.helpers.estimators import QUICK
from tests.helpers.frames import QUOTED, flowers, wide_table
from tests.helpers.pages import PageParser, text_of, value, written


def test_partial_dependence_of_a_known_function_is_its_average_over_the_other_columns():
    codes = np.random.default_rng(0).standard_normal((400, 3))

    def predict(rows):
        return np.stack([rows[:, 0] ** 2 + rows[:, 1], 5 - rows[:, 0] * rows[:, 2]], 1)

    values = np.linspace(-2, 2, 9)
    effect = partial_dependence(predict, codes, 0, values)
    np.testing.assert_allclose(effect.average[:, 0], values**2 + codes[:, 1].mean())
    np.testing.assert_allclose(effect.average[:, 1], 5 - values * codes[:, 2].mean())
    low, high = np.quantile(codes[:, 1], [0.1, 0.9])
    np.testing.assert_allclose(effect.low[:, 0], values**2 + low)
    np.testing.assert_allclose(effect.high[:, 0], values**2 + high)


def test_centred_curves_of_rows_that_react_alike_are_one():
    codes = np.random.default_rng(0).standard_normal((50, 2))
    values = np.linspace(0, 1, 5)

    def predict(rows):
        return rows[:, :1] + 10 * rows[:, 1:]

    effect = partial_dependence(predict, codes, 0, values, centred=True)
    np.testing.assert_allclose(effect.low, effect.average)
    np.testing.assert_allclose(effect.high, effect.average)


def test_grids_are_values_of_the_rows():
    numbers = np.r_[np.arange(1000.0), np.nan]
    found = grid(Column("x", "number"), numbers)
    assert len(found) == 20
    np.testing.assert_allclose(found, np.linspace(25, 975, 20), atol=2)
    assert np.isin(found, numbers).all()
    np.testing.assert_array_equal(grid(Column("x", "number"), np.array([3.0, 1, 3])), [1, 3])
    assert len(grid(Column("x", "number"), np.full(3, np.nan))) == 0
    levels = np.array([1, 1, 1, 0, np.nan, np.nan, -1, 2, 2, 2, 2.0])
    category = Column("x", "category", ("a", "b", "c"))
    np.testing.assert_array_equal(grid(category, levels), [2, 1, np.nan, -1, 0])


def test_permutation_importance_of_a_known_function():
    codes = np.random.default_rng(0).standard_normal((2000, 3))
    target = 3 * codes[:, 0] + codes[:, 1]

    def loss(rows):
        return float(np.mean((target - 3 * rows[:, 0] - rows[:, 1]) ** 2))

    found = permutation_importance(loss, codes)
    np.testing.assert_allclose(found, [18, 2, 0], rtol=0.1)  # 2 a² Var(x)
    np.testing.assert_array_equal(found, permutation_importance(loss, codes))
    assert not np.array_equal(found, permutation_importance(loss, codes, seed=1))


def test_the_slope_of_shuffling_a_linear_function_is_how_far_it_moves():
    generator = np.random.default_rng(0)
    numbers = generator.standard_normal((30, 2))
    codes = np.column_stack([numbers, generator.integers(0, 3, 30)])
    encoding = Encoding.fit(torch.from_numpy(codes), [0, 0, 3], torch.ones(30))
    weight = torch.tensor([2.0, 0.0, 1.0, 3.0, -1.0], dtype=torch.float64)
    found = shuffling_slope(lambda inputs: inputs @ weight, encoding, codes)

    def predictions(codes: np.ndarray) -> np.ndarray:
        return np.asarray(encoding(torch.from_numpy(codes)) @ weight)

    order = np.random.default_rng(0).permutation(30)
    for at in range(3):
        shuffled = codes.copy()
        shuffled[:, at] = codes[order, at]
        moved = np.abs(predictions(shuffled) - predictions(codes)).mean()
        assert found[at] == pytest.approx(moved, abs=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("target", ["y", "high"])
def test_of_very_many_columns_those_that_move_predictions_are_shuffled(
    target, tmp_path, monkeypatch
):
    monkeypatch.setattr(influence, "MAX_SHUFFLED", 7)
    frame = wide_table(200).assign(high=lambda rows: np.where(rows["y"] > 0, "yes", "no"))
    frame = frame.drop(columns=({"y", "high"} - {target}).pop())
    kind = LastLayerRegressor if target == "y" else LastLayerClassifier
    model = kind(**QUICK).fit(frame.drop(columns=target), frame[target])
    page = written(model, frame, target, tmp_path)
    rows = PageParser(page).tables["Importance of columns"][1:]
    assert len(rows) == 7
    assert rows[0][0].startswith("xxx")
    assert "43 less important columns are not listed. Of all 50 columns, 7 were" in text_of(page)


@pytest.mark.slow
def test_an_irrelevant_column_has_no_importance(regression_page, classification_page):
    for page, strong, weak in (
        (regression_page, "size", QUOTED), (classification_page, "long", "noise")
    ):  # fmt: skip
        rows = {
            row[0]: value(row[1]) for row in PageParser(page).tables["Importance of columns"][1:]
        }
        assert list(rows.values()) == sorted(rows.values(), reverse=True)
        assert rows[strong] > 0.3
        assert abs(rows[weak]) < 0.1 * rows[strong]


@pytest.mark.slow
def test_of_many_columns_the_most_important_have_figures(wide_page):
    text, tables = text_of(wide_page), PageParser(wide_page).tables
    assert "Shown are 12 of 50 columns" in text
    assert wide_page.count('aria-label="Average predictions') == 12
    importance = tables["Importance of columns"][1:]
    assert importance[0][0] == f"{'x' * 39}…{'x' * 20}"
    assert len(importance) == 25
    assert "25 less important columns are not listed" in text
    assert len(tables["Columns of the table"]) == 52
    assert len(wide_page) < 400_000


def test_letters_of_all_scripts_and_many_levels_are_drawn(crowded_page):
    figure = re.findall(r"<svg[^>]*by città.*?</svg>", crowded_page, re.DOTALL)[0]
    texts = re.findall(r"<text[^>]*>(.*?)</text>", figure)
    assert {"東京", "🙂", "long long lon…g long"} <= set(texts)
    levels = [text for text in texts if "%" not in text]
    assert len(levels) == 8  # of 23


@pytest.mark.usefixtures("undrawn")
def test_many_classes_take_fewer_rows(classifier, tmp_path, monkeypatch) -> None:
    frame = flowers(120, 1)
    monkeypatch.setattr(influence, "MIN_ROWS", 20)
    for most, rows in ((10_000, 120), (90, 30), (9, 20)):  # of probabilities; there are 3 each
        monkeypatch.setattr(influence, "MAX_PROBABILITIES", most)
        page = text_of(written(classifier, frame, "kind", tmp_path))
        assert f"keep their values, over {rows} rows" in page
