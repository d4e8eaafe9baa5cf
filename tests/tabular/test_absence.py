"""Rows without a value that training always had are predicted with less confidence."""

import numpy as np
import pytest
import torch

from lastlayer.predictive import SoftmaxPredictive
from lastlayer.sklearn import LastLayerClassifier, load, save
from lastlayer.tabular.absence import AddedTemperature
from tests.helpers.estimators import QUICK


def test_temperatures_of_absent_values_multiply_and_are_those_of_least_loss(generator):
    logits = torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    target = torch.distributions.Categorical(logits=logits).sample()
    absence = AddedTemperature(3, 1)
    weight = torch.ones(4000, dtype=torch.float64)
    cost = absence.cost(SoftmaxPredictive(2 * logits), target, weight)
    assert float(cost) == pytest.approx(np.log(2), abs=0.1)  # twice as sure as is right
    assert float(absence.cost(SoftmaxPredictive(logits / 2), target, weight)) == 0
    absence.added.copy_(torch.tensor([[1.0], [0.5], [2.0]]))
    absent = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    actual = absence(SoftmaxPredictive(logits[:2]), absent).probs()
    expected = torch.stack([(logits[0] / np.exp(1.5)), logits[1]]).softmax(-1)
    torch.testing.assert_close(actual, expected)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["discriminative", "generative"])
def test_classes_are_less_sure_without_the_column_that_decides(head, tmp_path):
    random = np.random.default_rng(0)
    X = random.normal(size=(900, 3))
    chance = 1 / (1 + np.exp(-4 * X[:, 0] - X[:, 1] + 1))
    y = (random.uniform(size=900) < chance).astype(int)
    model = LastLayerClassifier(head, **QUICK).fit(X[:500], y[:500])
    rows, known = X[500:].copy(), y[500:]
    whole = model.predict_proba(rows)
    rows[:, 0] = np.nan

    def nll():
        return -np.log(model.predict_proba(rows)[np.arange(400), known]).mean()

    save(model, tmp_path / "model")
    np.testing.assert_array_equal(
        load(tmp_path / "model").predict_proba(rows), model.predict_proba(rows)
    )
    added = model.model_.absence.added.clone()
    widened = nll()
    assert added[0] > added[2]
    model.model_.absence.added.zero_()
    assert widened < nll()
    np.testing.assert_array_equal(model.predict_proba(X[500:]), whole)
