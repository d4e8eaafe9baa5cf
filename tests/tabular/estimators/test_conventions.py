"""Conventions of scikit-learn: its own checks, pipelines, seeds and settings."""

import math

import numpy as np
import pytest
import torch
from mapie.classification import SplitConformalClassifier
from mapie.regression import SplitConformalRegressor
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

from lastlayer.sklearn import LastLayerClassifier, LastLayerRegressor
from tests.helpers.estimators import QUICK, QUICKEST

ESTIMATORS = [LastLayerRegressor(noise="constant", **QUICKEST), LastLayerClassifier(**QUICKEST)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_agrees(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_they_work_in_pipelines_searches_and_cross_validation(regression):
    X, y = regression
    pipeline = make_pipeline(PolynomialFeatures(2), LastLayerRegressor(**QUICKEST))
    name = "lastlayerregressor__hidden_layers"
    search = GridSearchCV(pipeline, {name: [(), (10,)]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.5
    assert len(cross_val_score(LastLayerRegressor(**QUICKEST), X, y, cv=2)) == 2


@pytest.mark.slow
def test_mapie_makes_their_intervals_and_sets_conformal(regression, classification):
    X, y = regression
    conformal = SplitConformalRegressor(LastLayerRegressor(**QUICK), 0.9, prefit=False)
    conformal.fit(X[:120], y[:120]).conformalize(X[120:], y[120:])
    new, target = make_friedman1(1000, noise=1.0, random_state=1)
    lower, upper = conformal.predict_interval(new)[1][:, :, 0].T
    spread = math.sqrt(0.09 / 120 + 0.09 / 1000)
    assert abs(np.mean((lower <= target) & (target <= upper)) - 0.9) < 4 * spread
    X, y = classification
    sets = SplitConformalClassifier(LastLayerClassifier(**QUICK), 0.9, prefit=False)
    sets.fit(X[:120], y[:120]).conformalize(X[120:], y[120:])
    assert sets.predict_set(X)[1].shape == (240, 3, 1)


@pytest.mark.slow
def test_an_integer_seed_makes_fits_the_same_and_the_caller_keeps_random_numbers(regression):
    X, y = regression
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    one = LastLayerRegressor(**QUICKEST).fit(X, y).predict(X)
    torch.testing.assert_close(torch.rand(2), expected)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_array_equal(
        one, clone(LastLayerRegressor(**QUICKEST)).fit(X[order], y[order]).predict(X)
    )
    assert not np.array_equal(
        one, LastLayerRegressor(**QUICKEST | {"random_state": 1}).fit(X, y).predict(X)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_layers": 50}, r"width of each layer, got 50; pass a tuple, as \(50, 50\)"),
        ({"hidden_layers": "50,50"}, r"width of each layer, got '50,50'; pass a tuple"),
        ({"hidden_layers": (5.5,)}, "each width in hidden_layers must be an integer of at least 1"),
        ({"hidden_layers": (0,)}, "each width in hidden_layers must be an integer of at least 1"),
        ({"weight_decays": 30.0}, r"the numbers to try, got 30\.0; pass a tuple, as \(30\.0,\)"),
        ({"weight_decays": ("a",)}, "each of weight_decays must be a finite number, got 'a'"),
        ({"weight_decays": (-1.0,)}, "weight_decays are numbers of at least zero"),
    ],
)
def test_settings_that_cannot_be_say_what_should_be(regression, options, message):
    with pytest.raises(ValueError, match=message):
        LastLayerRegressor(**QUICKEST | options).fit(*regression)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_draws_are_counted_in_whole_numbers(regressor, regression, count):
    X, y = regression
    classifier = LastLayerClassifier(**QUICKEST).fit(X[:40], y[:40] > y[:40].mean())
    for model in (regressor, classifier):
        with pytest.raises(ValueError, match="n_samples must be an integer of at least 1, got"):
            model.sample_y(X[:3], count)
