"""Inputs that have nothing to do with the target."""

import itertools
import math

import pytest
import torch
from sklearn.linear_model import Ridge

from lastlayer.tabular import screening
from lastlayer.tabular.screening import Screen, _pairs, _ridge_errors, relevant, screening_helps


def table(generator: torch.Generator, useful: int) -> tuple[torch.Tensor, ...]:
    """Sixty inputs, of which some are of use, the first by its square."""
    inputs = torch.randn(150, 60, generator=generator, dtype=torch.float64)
    effects = torch.cat([inputs[:, :1].square(), inputs[:, 1:useful]], -1).sum(-1, keepdim=True)
    noise = torch.randn(150, 1, generator=generator, dtype=torch.float64)
    return inputs, effects + noise, torch.ones(150, dtype=torch.float64)


def hidden(generator: torch.Generator, effect: str) -> tuple[torch.Tensor, ...]:
    """Forty inputs, of which one or two matter, but neither by a line nor by a square."""
    inputs = torch.randn(300, 40, generator=generator, dtype=torch.float64)
    inputs[:, 0] = math.sqrt(3) * (2 * torch.rand(300, generator=generator) - 1)
    noise = 0.3 * torch.randn(300, 1, generator=generator, dtype=torch.float64)
    effects = {
        "product": inputs[:, 0] * inputs[:, 1],
        "parity": (inputs[:, 0] * inputs[:, 1]).sign(),
        "wave": torch.cos(math.sqrt(3) * math.pi * inputs[:, 0]),
        "none": torch.zeros(300),
    }
    return inputs, effects[effect].unsqueeze(-1) + noise, torch.ones(300, dtype=torch.float64)


@pytest.fixture
def by_themselves(monkeypatch):
    """Neither waves nor products."""
    monkeypatch.setattr(screening, "_pairs", lambda inputs, *_: torch.empty(0, 2, dtype=torch.long))
    monkeypatch.setattr(screening, "HALF_WAVES", (0,))  # a constant


@pytest.mark.usefixtures("by_themselves")
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


@pytest.mark.parametrize(("effect", "useful"), [("product", 2), ("parity", 2), ("wave", 1)])
def test_inputs_that_matter_together_or_in_waves_are_kept(generator, effect, useful):
    data = hidden(generator, effect)
    assert relevant(*data).kept[:useful].all()
    assert screening_helps(0, *data)


def test_inputs_that_have_nothing_to_do_with_the_target_are_hardly_ever_kept(generator):
    counts = [int(relevant(*hidden(generator, "none")).kept.sum()) for _ in range(20)]
    assert sum(counts) < 20 * 3  # one always is
    assert not screening_helps(0, *hidden(generator, "none"))


def test_pairs_are_those_whose_products_correlate_more_than_with_shuffled_targets(generator):
    inputs = torch.randn(200, 6, generator=generator, dtype=torch.float64)
    noise = torch.randn(200, generator=generator, dtype=torch.float64)
    weight = 1 + torch.rand(200, generator=generator, dtype=torch.float64)
    rest = inputs[:, 0] * inputs[:, 3] - inputs[:, 2] * inputs[:, 4] + noise
    location = weight @ rest / weight.sum()
    rest = (rest - location) / (weight @ (rest - location).square() / weight.sum()).sqrt()

    def correlations(rest):
        found = {}
        for pair in itertools.combinations(range(6), 2):
            product = inputs[:, pair[0]] * inputs[:, pair[1]]
            both = torch.cov(torch.stack([product, rest]), aweights=weight, correction=0)
            mean = weight @ rest / weight.sum()  # zero but for shuffled rows
            joint = both[0, 1] + mean * (weight @ product) / weight.sum()
            found[pair] = float(joint.abs() / both[0, 0].sqrt())
        return found

    orders = torch.Generator().manual_seed(0)
    shuffled = [correlations(rest[torch.randperm(200, generator=orders)]) for _ in range(4)]
    limit = max(math.sqrt(2 * math.log(15) / 200), *(max(each.values()) for each in shuffled))
    actual = correlations(rest)
    expected = sorted((pair for pair in actual if actual[pair] > limit), key=lambda p: -actual[p])
    assert {(0, 3), (2, 4)} <= set(expected)
    pairs = _pairs(inputs, torch.arange(6.0).flip(0), rest.unsqueeze(-1), weight)
    assert [tuple(pair) for pair in pairs.tolist()] == expected


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
