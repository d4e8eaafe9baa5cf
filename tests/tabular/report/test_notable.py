"""The most uncertain and the most unusual rows."""

import copy
import math

import numpy as np
import pandas as pd
import pytest

from tests.helpers.frames import QUOTED, flats, flowers
from tests.helpers.pages import PageParser, text_of, value, written


@pytest.mark.usefixtures("undrawn")
def test_rows_to_inspect_are_the_most_uncertain_and_the_most_unusual(regressor, tmp_path):
    frame = flats(120, 1)
    frame.loc[7, ["size", QUOTED]] = [2000.0, 30.0]
    frame.index = pd.Index([f"flat {at}" for at in range(120)])
    rows = frame.drop(columns="rent")
    page = written(regressor, frame, "rent", tmp_path)
    _, stddev = regressor.predict(rows, return_std=True)
    score = regressor.ood_score(rows)
    tables = PageParser(page).tables
    for label, wanted in (("Most uncertain rows", stddev), ("Most unusual rows", score)):
        header, *shown = tables[label]
        assert header[:2] == ["row", "index"]
        numbers = [int(row[0]) - 1 for row in shown]
        assert numbers == np.argsort(-wanted)[:10].tolist()
        for at, row in zip(numbers, shown, strict=True):
            assert row[1] == f"flat {at}"
            assert value(row[2]) == pytest.approx(regressor.predict(rows)[at], rel=6e-3)
            lower, upper = regressor.predict_interval(rows, 0.9)[at]
            assert value(row[3].split(" to ")[0]) == pytest.approx(lower, rel=6e-3, abs=1)
            assert value(row[4]) == pytest.approx(frame["rent"].iloc[at], rel=6e-3)
            assert value(row[5]) == pytest.approx(score[at], rel=6e-3)
            assert ("unusual" in row[6]) == (score[at] > regressor.ood_threshold_)
            assert ("outside" in row[6]) == (not lower <= frame["rent"].iloc[at] <= upper)
    assert "unusual" in tables["Most unusual rows"][1][6]  # the one that was made so


@pytest.mark.usefixtures("undrawn")
def test_without_a_threshold_no_row_is_marked_as_unusual(regressor, tmp_path):
    model = copy.copy(regressor)
    model.ood_threshold_ = math.inf  # of a model of few rows
    page = written(model, flats(20, 1), "rent", tmp_path)
    assert "Training had too few rows for a threshold" in text_of(page)
    assert "unusual" not in "".join(row[-1] for row in PageParser(page).tables["Most unusual rows"])
    assert "∞" not in page


def test_classes_are_shown_with_the_runner_up(classifier, classification_page):
    frame = flowers(120, 1)
    probs = classifier.predict_proba(frame.drop(columns="kind"))
    entropy = -(probs * np.log(probs)).sum(1)
    first = PageParser(classification_page).tables["Most uncertain rows"][1]
    at = int(entropy.argmax())
    order = np.argsort(-probs[at])
    assert first[0] == str(at + 1)
    assert first[1] == classifier.classes_[order[0]]
    assert value(first[2]) == pytest.approx(100 * probs[at, order[0]], rel=6e-3)
    assert first[3].startswith(f"{classifier.classes_[order[1]]}, ")
    assert first[4] == frame["kind"][at]
    assert ("wrong" in first[6]) == (first[1] != first[4])
