"""An estimator whose head and predictive the package does not know."""

import numpy as np
import pandas as pd
import pytest
import torch
from onnxruntime import InferenceSession
from sklearn.datasets import make_friedman1

from lastlayer.onnx import export_onnx
from lastlayer.report import write_report
from lastlayer.sklearn import save
from tests.helpers.estimators import QUICK, QUICKEST
from tests.helpers.laplace import HeteroscedasticRegressor, LaplaceRegressor
from tests.helpers.pages import cards, value

SCALE, SHIFT = 1000.0, 5e4


@pytest.fixture(scope="module")
def table():
    inputs, target = make_friedman1(200, noise=1.0, random_state=0)
    return inputs, SCALE * target + SHIFT


@pytest.fixture(scope="module")
def laplace(table):
    return LaplaceRegressor(**QUICK).fit(*table)


def test_its_predictions_are_in_the_units_of_the_target(laplace, table):
    inputs, target = table
    assert laplace.score(inputs, target) > 0.7
    mean, stddev = laplace.predict(inputs, return_std=True)
    lower, upper = laplace.predict_interval(inputs, 0.9).T
    reach = np.log(10) / np.sqrt(2) * stddev  # of a Laplace distribution
    np.testing.assert_allclose(upper, mean + reach, rtol=1e-9)
    np.testing.assert_allclose(lower, mean - reach, rtol=1e-9)
    errors = np.abs(target - mean)
    assert 0.5 * errors.std() < np.median(stddev) < 2 * errors.std() + errors.mean()


def test_its_scores_are_those_of_its_density(laplace, table):
    inputs, target = table
    mean, stddev = laplace.predict(inputs, return_std=True)
    scale = stddev / np.sqrt(2)
    expected = -np.log(2 * scale) - np.abs(target - mean) / scale
    actual = laplace.predict_dist(inputs).log_prob(torch.from_numpy(target)[:, None])
    np.testing.assert_allclose(actual, expected, rtol=1e-9)
    assert laplace.held_out_scores_["nll"] == pytest.approx(-expected.mean(), abs=1)


def test_it_has_a_report(laplace, table, tmp_path):
    inputs, target = table
    frame = pd.DataFrame(inputs).assign(y=target)
    write_report(laplace, frame, "y", tmp_path / "report.html")
    shown = cards((tmp_path / "report.html").read_text())
    error = np.sqrt(np.mean((laplace.predict(inputs) - target) ** 2))
    assert value(shown["Root mean squared error (RMSE)"]) == pytest.approx(error, rel=6e-3)


@pytest.mark.slow
def test_it_is_exported_as_onnx(laplace, table, tmp_path):
    path = export_onnx(laplace, tmp_path / "model.onnx").path
    outputs = InferenceSession(path).run(["lower", "upper"], {"codes": table[0]})
    np.testing.assert_allclose(np.stack(outputs, -1), laplace.predict_interval(table[0]), rtol=1e-9)


@pytest.mark.slow
def test_intervals_of_different_shapes_are_exported_as_they_are(table, tmp_path):
    inputs, target = table
    uneven = HeteroscedasticRegressor(**QUICKEST).fit(inputs, target)
    path = export_onnx(uneven, tmp_path / "model.onnx").path
    outputs = InferenceSession(path).run(["lower", "upper"], {"codes": inputs})
    np.testing.assert_allclose(np.stack(outputs, -1), uneven.predict_interval(inputs), rtol=1e-8)
    mean, stddev = uneven.predict(inputs, return_std=True)
    below = (mean - outputs[0]) / stddev
    assert below.max() - below.min() > 1e-6


def test_it_is_not_saved_as_an_estimator_with_another_head(laplace, tmp_path):
    with pytest.raises(TypeError, match="got LaplaceRegressor, which `load` could not restore"):
        save(laplace, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_draws_that_it_cannot_make_are_refused(laplace, table):
    with pytest.raises(TypeError, match=r"LaplacePredictive is none; draw each row by itself"):
        laplace.sample_y(table[0][:3])
