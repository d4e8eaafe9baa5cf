"""Intervals and sets with a guarantee, from rows that training never sees."""

import math
from typing import Any

import numpy as np
import pytest

from lastlayer.sklearn import LastLayerClassifier, LastLayerRegressor
from lastlayer.tabular.estimators._conformal import hold_out
from lastlayer.tabular.files.folder import load, save
from lastlayer.tabular.rows import Rows

TINY: dict[str, Any] = {
    "hidden_layers": (),
    "max_epochs": 4,
    "early_stopping": False,
    "num_folds": 2,
    "weight_decays": (30.0,),
    "interval": "conformal",
}


def skewed(random, count):
    """Rows whose targets no Gaussian describes."""
    X = random.normal(size=(count, 2))
    return X, X[:, 0] + np.exp(1.5 * random.normal(size=count))


@pytest.mark.slow
def test_conformal_intervals_and_sets_cover_at_their_level_on_average_over_small_tables():
    shares, in_set, level, tables = [], [], 0.8, 24
    for seed in range(tables):
        random = np.random.default_rng(seed)
        (X, y), (new, known) = skewed(random, 60), skewed(random, 200)
        model = LastLayerRegressor(random_state=seed, **TINY).fit(X, y)
        lower, upper = model.predict_interval(new, level).T
        shares.append(np.mean((lower <= known) & (known <= upper)))
        if seed % 3 == 0:
            classes = LastLayerClassifier(random_state=seed, **TINY).fit(X, y > 1)
            sets = classes.predict_set(new, level)
            in_set.append(sets[np.arange(200), (known > 1).astype(int)].mean())
    # of 12 held-out rows the 11th largest: coverage is Beta(11, 2), of mean 11/13
    error = math.sqrt(11 * 2 / (13**2 * 14) / tables)
    assert abs(np.mean(shares) - 11 / 13) < 4 * error
    assert np.mean(in_set) > level - 4 * error * math.sqrt(3)


def test_rows_are_held_out_whatever_the_order_and_copies_are_rows_of_their_own():
    codes, target = np.arange(30.0)[:, None], np.zeros((30, 1))
    twice = Rows.of(np.repeat(codes, 2, 0)[::-1], np.repeat(target, 2, 0), None)
    weighted = Rows.of(codes, target, np.full(30, 2.0))
    for one, other in zip(hold_out(twice, 3), hold_out(weighted, 3), strict=True):
        for part, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, same)
    kept, held = hold_out(weighted, 3)
    assert held.weight.sum() == 12
    assert kept.weight.sum() == 48
    with pytest.raises(ValueError, match="weights are not integers; leave out sample_weight"):
        hold_out(Rows.of(codes, target, np.full(30, 0.5)), 3)


def test_conformal_intervals_are_saved_and_few_rows_have_infinite_ones(tmp_path):
    X, y = skewed(np.random.default_rng(0), 40)
    model = LastLayerRegressor(random_state=0, **TINY).fit(X, y)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_interval(X, 0.7), model.predict_interval(X, 0.7))
    assert np.isinf(model.predict_interval(X, 0.9)).all()  # of eight held-out rows
    with pytest.raises(ValueError, match="fit again on all rows"):
        model.partial_fit(X, y)


def test_sets_by_probability_are_the_smallest_that_reach_the_level(classifier, classification):
    X = classification[0][:20]
    probs, sets = classifier.predict_proba(X), classifier.predict_set(X, 0.9)
    assert ((probs * sets).sum(1) >= 0.9 - 1e-9).all()
    least = np.where(sets, probs, 2.0).min(1)  # the last class that was taken was needed
    assert ((probs * sets).sum(1) - least < 0.9).all()
