"""Inputs that have nothing to do with the target."""

import math

import torch
from sklearn.linear_model import Ridge

from lastlayer.tabular.screening import Screen, _ridge_errors, screening_helps


def table(generator: torch.Generator, useful: int) -> tuple[torch.Tensor, ...]:
    """Sixty inputs, of which some are of use, the first by its square."""
    inputs = torch.randn(150, 60, generator=generator, dtype=torch.float64)
    effects = torch.cat([inputs[:, :1].square(), inputs[:, 1:useful]], -1).sum(-1, keepdim=True)
    noise = torch.randn(150, 1, generator=generator, dtype=torch.float64)
    return inputs, effects + noise, torch.ones(150, dtype=torch.float64)


def test_inputs_are_kept_if_they_or_their_squares_correlate_more_than_by_chance(generator):
    inputs, target, weight = table(generator, 3)
    screen = Screen(60).double().fit(inputs, target, weight)
    limit = math.sqrt(2 * math.log(120) / 150)
    expected = torch.zeros(60, dtype=torch.float64)
    for at, column in enumerate(inputs.mT):
        pairs = (torch.stack([values, target[:, 0]]) for values in (column, column.square()))
        expected[at] = max(float(torch.corrcoef(pair)[0, 1].abs()) for pair in pairs) > limit
    assert expected[:3].tolist() == [1, 1, 1]
    torch.testing.assert_close(screen.kept, expected)
    torch.testing.assert_close(screen(inputs), inputs * expected)


def test_screening_helps_where_few_inputs_are_of_use_and_not_where_all_are(generator):
    assert screening_helps(0, *table(generator, 3))
    assert not screening_helps(0, *table(generator, 60))
    inputs, *others = table(generator, 3)
    assert not screening_helps(0, inputs[:, :19], *others)  # too few to ask


def test_errors_are_those_of_ridge_regression(generator):
    inputs, target, weight = table(generator, 3)
    weight = weight + torch.rand(150, generator=generator, dtype=torch.float64)
    pairs = [(part[:100], part[100:]) for part in (inputs, target, weight)]
    actual = _ridge_errors(*pairs)
    (train, test), (known, hidden), (w, v) = pairs
    mean = (w[:, None] * train).sum(0) / w.sum()
    scale = ((w[:, None] * (train - mean).square()).sum(0) / w.sum()).sqrt()
    train, test = (train - mean) / scale, (test - mean) / scale
    trace = float((w[:, None] * train.square()).sum())
    for at, power in enumerate(range(-3, 4)):
        ridge = Ridge(alpha=trace / 100 * 10.0**power).fit(train, known, sample_weight=w.numpy())
        errors = torch.tensor(ridge.predict(test)).reshape(-1, 1) - hidden
        torch.testing.assert_close(actual[at], (v[:, None] * errors.square()).sum())
