"""Scores on the page equal those computed with NumPy."""

import math
import re

import numpy as np
import pytest
import torch

from lastlayer.tabular.reading import subsample
from lastlayer.tabular.report import measures
from tests.helpers.frames import flats, flowers
from tests.helpers.pages import PageParser, cards, text_of, value, written

LEVELS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99)


def test_scores_of_regression_equal_those_of_numpy(regressor, regression_page):
    frame = flats(120, 1)
    rent = frame["rent"].to_numpy()
    rows = frame.drop(columns="rent")
    mean = regressor.predict(rows)
    lower, upper = regressor.predict_interval(rows, 0.9).T
    square = np.mean((rent - mean) ** 2)
    draws = regressor.sample_y(rows, 4000)
    far = np.abs(draws - rent[:, None]).mean(1)
    apart = np.abs(draws[:, ::2] - draws[:, 1::2]).mean(1)
    density = regressor.predict_dist(rows).distribution()
    expected = {
        "Root mean squared error (RMSE)": math.sqrt(square),
        "Variance explained (R²)": 1 - square / rent.var(),
        "Coverage of 90 % intervals": 100 * np.mean((lower <= rent) & (rent <= upper)),
        "Mean width of 90 % intervals": np.mean(upper - lower),
        "Negative log-likelihood (NLL)": -density.log_prob(torch.tensor(rent)[:, None])
        .mean()
        .item(),
    }
    found = cards(regression_page)
    for name, wanted in expected.items():
        assert value(found[name]) == pytest.approx(wanted, rel=6e-3), name
    assert value(found["Continuous ranked probability score (CRPS)"]) == pytest.approx(
        (far - apart / 2).mean(), rel=0.03
    )


def test_coverage_and_width_at_every_level_are_counted(regressor, regression_page):
    frame = flats(120, 1)
    table = PageParser(regression_page).tables["Coverage by level"][1:]
    assert [value(row[0]) for row in table] == list(LEVELS)
    for row, level in zip(table, LEVELS, strict=True):
        ends = regressor.predict_interval(frame.drop(columns="rent"), level / 100)
        inside = (ends[:, 0] <= frame["rent"]) & (frame["rent"] <= ends[:, 1])
        assert value(row[1]) == pytest.approx(100 * inside.mean(), rel=6e-3)
        assert value(row[2]) == pytest.approx((ends[:, 1] - ends[:, 0]).mean(), rel=6e-3)


@pytest.mark.usefixtures("undrawn")
def test_of_many_rows_some_are_in_the_curve_and_all_in_the_scores(
    regressor, regression_page, tmp_path, monkeypatch
):
    monkeypatch.setattr(measures, "MAX_IN_CURVE", 50)
    frame = flats(120, 1)
    page = written(regressor, frame, "rent", tmp_path)
    assert cards(page) == cards(regression_page)
    assert "here and in the figure above, of 50 rows chosen at random" in text_of(page)
    chosen = frame.iloc[subsample(np.arange(120), 50)]
    low, high = regressor.predict_interval(chosen.drop(columns="rent"), 0.5).T
    inside = (low <= chosen["rent"]) & (chosen["rent"] <= high)
    assert value(PageParser(page).tables["Coverage by level"][5][1]) == 100 * inside.mean()


def test_scores_of_classification_equal_those_of_numpy(classifier, classification_page):
    frame = flowers(120, 1)
    probs = classifier.predict_proba(frame.drop(columns="kind"))
    label = np.searchsorted(classifier.classes_, frame["kind"].to_numpy(str))
    right = probs.argmax(1) == label
    truth = np.eye(3)[label]
    confidence = probs.max(1)
    bins = np.minimum((15 * confidence).astype(int), 14)
    gaps = [abs((right - confidence)[bins == at].sum()) for at in range(15)]
    expected = {
        "Accuracy": 100 * right.mean(),
        "Negative log-likelihood (NLL)": -np.log(probs[range(120), label]).mean(),
        "Brier score": ((probs - truth) ** 2).sum(1).mean(),
        "Expected calibration error (ECE)": 100 * sum(gaps) / 120,
    }
    found = cards(classification_page)
    assert found.keys() == expected.keys()  # AUROC is of two classes
    for name, wanted in expected.items():
        assert value(found[name]) == pytest.approx(wanted, rel=6e-3), name


def test_the_confusion_matrix_counts_rows(classifier, classification_page):
    frame = flowers(120, 1)
    predicted = classifier.predict(frame.drop(columns="kind"))
    header, *rows = PageParser(classification_page).tables["Confusion matrix"]
    names = [str(name) for name in classifier.classes_]
    assert header[1:] == names
    for row, observed in zip(rows, names, strict=True):
        counts = [((frame["kind"] == observed) & (predicted == name)).sum() for name in names]
        assert row == [observed, *map(str, counts)]


def test_the_confusion_matrix_has_numbered_classes_in_numerical_order(monkeypatch):
    classes = sorted(map(str, range(1, 12)))  # 1, 10, 11, 2, …
    target = torch.arange(11).repeat(2)
    predicted = target.clone()
    predicted[classes.index("2")] = classes.index("10")
    found = measures._confusion(target, predicted, classes)
    assert found.names == [str(at) for at in range(1, 12)]
    expected = 2 * np.eye(11)
    expected[1, [1, 9]] = 1
    np.testing.assert_array_equal(found.counts, expected)
    monkeypatch.setattr(measures, "MAX_CLASSES", 4)
    found = measures._confusion(torch.cat([target, target[7:11]]), torch.zeros(26).long(), classes)
    assert found.names == ["6", "7", "8", "8 others"]
    assert found.counts[:, 3].tolist() == [3, 3, 3, 17]


@pytest.mark.usefixtures("undrawn")
def test_auroc_is_how_often_pairs_are_in_order(binary, tmp_path):
    frame = flowers(90, 1, 2)
    page = written(binary, frame, "kind", tmp_path)
    score = binary.predict_proba(frame.drop(columns="kind"))[:, 1]
    pairs = score[frame["kind"] == 1][:, None] > score[frame["kind"] == 0]
    assert value(cards(page)["AUROC"]) == pytest.approx(pairs.mean(), rel=6e-3)
    one_class = written(binary, frame[frame["kind"] == 1], "kind", tmp_path)
    assert cards(one_class)["AUROC"] == "–"


@pytest.mark.usefixtures("undrawn")
def test_a_constant_target_has_no_variance_to_explain(regressor, tmp_path):
    page = written(regressor, flats(40, 1).assign(rent=1000.0), "rent", tmp_path)
    assert cards(page)["Variance explained (R²)"] == "–"
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_many_classes_share_the_confusion_matrix(crowded_page):
    header, *rows = PageParser(crowded_page).tables["Confusion matrix"]
    assert len(header) == 13
    assert header[-1] == "9 others"
    counts = np.array([[int(count) for count in row[1:]] for row in rows])
    assert counts.sum(1).tolist() == [5] * 11 + [45]
    assert "14 more classes are not drawn" in text_of(crowded_page)
