"""R² equals that of scikit-learn, in one part or many."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score

from lastlayer.tabular.scores import ExplainedVariance, explained_variance


def tables(seed: int = 0, size: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(seed)
    target = generator.standard_normal((50, 2)) + np.array([1000 * size, -3])
    prediction = target + 0.5 * generator.standard_normal((50, 2))
    weight = generator.integers(0, 4, 50).astype(float)
    return torch.from_numpy(prediction), torch.from_numpy(target), torch.from_numpy(weight)


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_r2_of_parts_equals_that_of_scikit_learn(size):
    prediction, target, weight = tables(size=size)
    expected = r2_score(target, prediction, sample_weight=weight)
    metric = ExplainedVariance()
    for rows in (slice(0, 1), slice(1, 20), slice(20, 50)):
        metric.update(prediction[rows], target[rows], weight[rows])
    assert metric.compute() == pytest.approx(expected, rel=1e-9)
    assert explained_variance(prediction, target, weight) == pytest.approx(expected, rel=1e-9)
    repeated = torch.repeat_interleave(torch.arange(50), weight.long())
    assert explained_variance(prediction[repeated], target[repeated]) == pytest.approx(expected)


def test_r2_does_not_depend_on_the_first_part_being_far_away():
    target = torch.tensor([1e8, 1.0, 2.0, 4.0], dtype=torch.float64)
    prediction = torch.tensor([[1e8], [1.5], [2.0], [3.0]], dtype=torch.float64)
    metric = ExplainedVariance()
    for at in range(4):
        metric.update(prediction[at : at + 1], target[at : at + 1])
    assert metric.compute() == pytest.approx(r2_score(target, prediction[:, 0]), abs=1e-15)


def test_r2_of_constant_targets_is_nan():
    target = torch.full((7,), 0.1, dtype=torch.float64)
    metric = ExplainedVariance()
    for rows in (slice(0, 3), slice(3, 7)):
        metric.update(torch.rand(7, 1, dtype=torch.float64)[rows], target[rows])
    assert math.isnan(metric.compute())
