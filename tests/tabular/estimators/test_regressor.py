"""The regressor: moments, intervals, draws and updates."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_friedman1

from lastlayer.sklearn import LastLayerRegressor, load, save
from tests.helpers.estimators import QUICK


def test_it_learns_and_its_intervals_cover(regressor):
    X, y = make_friedman1(500, noise=1.0, random_state=1)
    assert regressor.score(X, y) > 0.7
    lower, upper = regressor.predict_interval(X, 0.9).T
    covered = np.mean((lower <= y) & (y <= upper))
    assert abs(covered - 0.9) < 4 * math.sqrt(0.09 / 240)  # calibrated on 240 rows


def test_moments_intervals_and_densities_are_of_one_distribution(regressor, regression):
    X = regression[0][:20]
    mean, stddev = regressor.predict(X, return_std=True)
    predictive = regressor.predict_dist(X)
    np.testing.assert_allclose(predictive.mean[:, 0], mean)
    np.testing.assert_allclose(predictive.stddev[:, 0], stddev)
    grid = torch.linspace(-200, 200, 100_001)
    density = predictive[[0] * len(grid)].log_prob(grid).exp()
    np.testing.assert_allclose(torch.trapezoid(density, grid), 1, rtol=1e-4)
    np.testing.assert_allclose(torch.trapezoid(grid * density, grid), mean[0], rtol=1e-4)
    inside = (grid >= regressor.predict_interval(X)[0, 0]) & (
        grid <= regressor.predict_interval(X)[0, 1]
    )
    np.testing.assert_allclose(torch.trapezoid(density * inside, grid), 0.9, atol=2e-3)


@pytest.mark.slow
def test_the_units_of_the_target_are_those_of_predictions(regression):
    X, y = regression
    one, other = (LastLayerRegressor(**QUICK).fit(X, target) for target in (y, 1000 * y - 7))
    (mean, stddev), (mean_2, stddev_2) = (m.predict(X, return_std=True) for m in (one, other))
    np.testing.assert_allclose(mean_2, 1000 * mean - 7, rtol=1e-2)
    np.testing.assert_allclose(stddev_2, 1000 * stddev, rtol=1e-2)


def test_draws_have_the_predicted_moments_and_errors_of_equal_rows_are_correlated(
    regressor, regression
):
    X = np.repeat(regression[0][:5], 2, 0)
    draws = regressor.sample_y(X, 20_000)
    mean, stddev = regressor.predict(X, return_std=True)
    assert draws.shape == (10, 20_000)
    assert np.abs(draws.mean(1) - mean).max() < 5 * stddev.max() / math.sqrt(20_000)
    np.testing.assert_allclose(draws.std(1), stddev, rtol=0.05)
    predictive = regressor.predict_dist(X)
    share = predictive.epistemic_variance / predictive.variance
    pairs = [np.corrcoef(draws[at], draws[at + 1])[0, 1] for at in range(0, 10, 2)]
    # the factor of the variance is each row's own, so that correlation is a little less
    assert (np.array(pairs) < share[::2, 0].numpy() + 0.03).all()
    assert (np.array(pairs) > 0.7 * share[::2, 0].numpy() - 0.03).all()
    np.testing.assert_array_equal(regressor.sample_y(X, 3), regressor.sample_y(X, 3))


@pytest.mark.parametrize("noise", ["constant", "varying"])
def test_partial_fit_is_the_posterior_given_old_and_new_rows(regression, noise):
    X, y = regression
    model = LastLayerRegressor(noise=noise, **QUICK).fit(X[:200], y[:200])
    head: Any = model.model_.network.head
    units = model.model_.units
    features = model.model_.features(torch.from_numpy(X[200:])).detach()
    predicted = head(features)
    features = torch.cat([features, torch.ones(40, 1)], 1)  # the bias
    variance = predicted.noise_variance
    if noise == "varying":  # E[1/variance] of a log-normal variance
        variance = (predicted.log_noise_mean - 0.5 * predicted.log_noise_variance).exp()
    variance = variance.detach()
    precision = torch.linalg.inv(head.covariance.dense()[0]).detach()
    target = units.remove(torch.from_numpy(y[200:, None]))
    new = precision + features.mT @ (features / variance)
    expected = torch.linalg.solve(
        new, precision @ head.mean.detach()[0] + (features.mT @ (target / variance))[:, 0]
    )
    model.partial_fit(X[200:220], y[200:220]).partial_fit(X[220:], y[220:])
    torch.testing.assert_close(head.mean.detach()[0], expected)
    torch.testing.assert_close(head.covariance.dense()[0].detach(), torch.linalg.inv(new))


@pytest.fixture(scope="module")
def uneven():
    """Rows with noise that grows with the first column, and the estimator that was trained."""
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(900, 3))
    y = X[:, 1] + (0.05 + X[:, 0] ** 2) * generator.standard_normal(900)
    return X, y, LastLayerRegressor(**QUICK | {"max_epochs": 64}).fit(X[:400], y[:400])


def test_noise_that_grows_with_a_column_is_noticed_and_intervals_cover_everywhere(uneven):
    X, y, model = uneven
    assert model.head_ == "varying"
    assert [trial["alternative"] for trial in model.tried_] == [0, 1]
    assert model.tried_[1]["nll"] < model.tried_[0]["nll"] - 0.2
    X, y = X[400:], y[400:]
    lower, upper = model.predict_interval(X, 0.9).T
    third = np.digitize(X[:, 0], [1 / 3, 2 / 3])
    for which in range(3):
        rows = third == which
        covered = np.mean((lower <= y)[rows] & (y <= upper)[rows])
        assert abs(covered - 0.9) < 4 * math.sqrt(0.09 / rows.sum())
    draws, stddev = model.sample_y(X[:50], 4000), model.predict(X[:50], return_std=True)[1]
    np.testing.assert_allclose(draws.std(1), stddev, rtol=0.12)
    assert stddev.max() > 5 * stddev.min()


def test_varying_noise_is_saved_and_loaded(uneven, tmp_path):
    X, _, model = uneven
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))


def test_constant_noise_stays_where_it_is_better(regression):
    model = LastLayerRegressor(noise="constant", **QUICK).fit(*regression)
    variance = model.predict_dist(regression[0]).noise_variance
    assert model.head_ == "constant"
    assert float(variance.min()) == float(variance.max())
    with pytest.raises(ValueError, match="noise must be"):
        LastLayerRegressor(noise="none", **QUICK).fit(*regression)


@pytest.mark.slow
def test_partial_fit_counts_weights_as_repetitions(regression):
    X, y = regression
    base = LastLayerRegressor(**QUICK).fit(X[:200], y[:200])
    again = LastLayerRegressor(**QUICK).fit(X[:200], y[:200])
    base.partial_fit(X[200:], y[200:], sample_weight=np.full(40, 2))
    again.partial_fit(np.repeat(X[200:], 2, 0), np.repeat(y[200:], 2))
    np.testing.assert_allclose(base.predict(X), again.predict(X), rtol=1e-6)


def test_several_targets_are_predicted_together(regression):
    X, y = regression
    both = np.stack([y, -2 * y], 1)
    model = LastLayerRegressor(**QUICK).fit(X, both)
    mean, stddev = model.predict(X, return_std=True)
    assert mean.shape == stddev.shape == both.shape
    assert model.predict_interval(X).shape == (*both.shape, 2)
    assert model.sample_y(X, 3).shape == (*both.shape, 3)
    assert model.score(X, both) > 0.7
    with pytest.raises(ValueError, match="as in training"):
        model.partial_fit(X, y)


@pytest.mark.slow
def test_no_hidden_layer_is_linear_regression():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((200, 3))
    y = X @ [1.0, -2.0, 3.0] + 5 + 0.1 * generator.standard_normal(200)
    options = QUICK | {"hidden_layers": (), "max_epochs": 200}
    model = LastLayerRegressor(**options).fit(X, y)
    np.testing.assert_allclose(model.predict(X), X @ [1.0, -2.0, 3.0] + 5, atol=0.1)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_targets_whose_variance_float64_cannot_hold_are_refused(regression, size):
    with pytest.raises(ValueError, match="cannot hold; choose other units for y"):
        LastLayerRegressor(**QUICK).fit(regression[0], size * regression[1])
