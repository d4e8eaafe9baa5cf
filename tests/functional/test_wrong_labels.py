"""The bound for labels that are wrong now and then, against quadrature, sampling and limits."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor
from torch.testing import assert_close

from lastlayer.functional import softplus_bound, tilted_bound, wrong_label_bound
from lastlayer.functional.wrong_labels import tilt_of_log_odds
from tests.helpers.reference import sampled

MEANS = torch.tensor([-30.0, -4.0, -1.0, 0.0, 0.7, 3.0, 40.0], dtype=torch.float64)
VARIANCES = torch.tensor([1e-3, 0.2, 1.0, 9.0, 400.0], dtype=torch.float64)
MEAN, VARIANCE = (part.flatten() for part in torch.meshgrid(MEANS, VARIANCES, indexing="ij"))


def expected_softplus(mean: float, stddev: float) -> float:
    """By SciPy's adaptive quadrature, on both sides of the corner."""
    corner = min(max(-mean / stddev, -12.0), 12.0)

    def integrand(z: float) -> float:
        return float(np.logaddexp(0.0, mean + stddev * z) * norm.pdf(z))

    parts = ((-12.0, corner), (corner, 12.0))
    return sum(quad(integrand, low, high, limit=200)[0] for low, high in parts)


def test_softplus_bound_lies_between_the_truth_and_jensen() -> None:
    truth = torch.tensor(
        [
            expected_softplus(m, v**0.5)
            for m, v in zip(MEAN.tolist(), VARIANCE.tolist(), strict=True)
        ]
    )
    found = softplus_bound(MEAN, VARIANCE)
    assert (found >= truth * (1 - 1e-7) - 1e-12).all()
    assert (found <= F.softplus(MEAN + 0.5 * VARIANCE) * (1 + 1e-12)).all()


def test_softplus_bound_is_the_tilted_bound_of_two_classes() -> None:
    nothing = torch.zeros_like(MEAN)
    logits, variances = (torch.stack([nothing, part], -1) for part in (MEAN, VARIANCE))
    expected = -tilted_bound(logits, variances, nothing.long())
    found = softplus_bound(MEAN, VARIANCE)
    assert (found <= expected + 1e-12).all()
    near = VARIANCE < 100  # where both have converged
    assert_close(found[near], expected[near], rtol=1e-5, atol=1e-9)


def test_softplus_bound_is_least_at_its_tilt_and_has_the_slopes_that_follow() -> None:
    tilt = tilt_of_log_odds(MEAN, VARIANCE)
    assert_close(tilt, (MEAN + (0.5 - tilt) * VARIANCE).sigmoid(), rtol=1e-9, atol=1e-15)
    for other in (tilt + 0.01, tilt - 0.01):
        value = 0.5 * other.square() * VARIANCE
        value = value + F.softplus(MEAN + (0.5 - other) * VARIANCE)
        assert (softplus_bound(MEAN, VARIANCE) <= value + 1e-12).all()
    mean, variance = MEAN.clone().requires_grad_(), VARIANCE.clone().requires_grad_()
    assert torch.autograd.gradcheck(softplus_bound, (mean, variance))
    slopes = torch.autograd.grad(softplus_bound(mean, variance).sum(), (mean, variance))
    assert_close(slopes, (tilt, 0.5 * tilt * (1 - tilt)), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("num_classes", [2, 5])
def test_wrong_label_bound_is_below_what_it_bounds(
    num_classes: int, generator: torch.Generator
) -> None:
    mean, variance = 2 * torch.randn(2, 8, num_classes, generator=generator)
    variance = variance.exp()
    odds, spread = torch.randn(8, generator=generator), torch.rand(8, generator=generator) * 4
    target = torch.randint(num_classes, (8,), generator=generator)

    def log_likelihood(count: int) -> Tensor:
        z = torch.randn(count, 8, num_classes, generator=generator)
        probs = (mean + variance.sqrt() * z).softmax(-1)[:, torch.arange(8), target]
        g = odds + spread.sqrt() * torch.randn(count, 8, generator=generator)
        return ((-g).sigmoid() * probs + g.sigmoid() / num_classes).log()

    truth, error = sampled(log_likelihood, 100_000)
    bound = wrong_label_bound(tilted_bound(mean, variance, target), odds, spread, num_classes)
    assert (bound < truth + 4 * error).all()


def test_wrong_label_bound_is_the_log_likelihood_of_two_classes_if_all_is_certain() -> None:
    logit, odds = torch.tensor([-3.0, 0.4, 2.0]), torch.tensor([-2.0, 0.0, 1.0])
    right, random = logit.sigmoid(), odds.sigmoid()
    bound = wrong_label_bound(right.log(), odds, torch.zeros(3), 2)
    assert_close(bound, ((1 - random) * right + random / 2).log())


def test_wrong_label_bound_is_that_of_the_best_posterior_of_a_random_label() -> None:
    log_likelihood, odds = torch.tensor([-4.0, -0.3]), torch.tensor([-1.0, 0.5])
    spread = torch.tensor([0.3, 2.0])
    cost = softplus_bound(odds, spread)
    q = torch.linspace(1e-6, 1 - 1e-6, 100_001).unsqueeze(-1)
    entropy = -(q * q.log() + (1 - q) * (1 - q).log())
    value = (1 - q) * (log_likelihood - cost) + q * (odds - cost - math.log(7)) + entropy
    bound = wrong_label_bound(log_likelihood, odds, spread, 7)
    assert (value <= bound + 1e-12).all()
    assert_close(value.amax(0), bound, rtol=0, atol=1e-8)


def test_without_wrong_labels_the_bound_is_that_of_right_ones_exactly() -> None:
    log_likelihood = torch.tensor([-30.0, -4.0, -1e-3])
    for variance in (0.0, 1.0, 30.0):
        odds = torch.full((3,), -1e4)
        bound = wrong_label_bound(log_likelihood, odds, torch.full((3,), variance), 5)
        assert torch.equal(bound, log_likelihood)
