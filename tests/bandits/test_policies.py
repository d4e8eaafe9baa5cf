"""Probabilities of arms to be the best."""

import math

import pytest
import torch
from torch.testing import assert_close

from lastlayer.bandits.policies import best_arm_probabilities
from tests.helpers.reference import assert_within_standard_errors


def normal_cdf(value: float) -> float:
    return 0.5 * math.erfc(-value / math.sqrt(2))


@pytest.mark.parametrize("ratio", [1.0, 30.0, 1e5])
def test_of_two_arms_it_is_the_distribution_function_of_their_difference(ratio: float) -> None:
    mean, stddev = torch.tensor([0.3, -0.2]), torch.tensor([1.0, 1.0 / ratio])
    expected = normal_cdf(0.5 / math.hypot(1.0, 1.0 / ratio))
    found = best_arm_probabilities(mean, stddev)
    assert_close(found, torch.tensor([expected, 1 - expected]), rtol=1e-9, atol=1e-12)


def test_of_alike_arms_each_is_as_likely() -> None:
    found = best_arm_probabilities(torch.zeros(2, 7), torch.ones(2, 7))
    assert_close(found, torch.full((2, 7), 1 / 7), rtol=1e-10, atol=0)


def test_of_many_arms_it_is_the_frequency_among_draws(generator: torch.Generator) -> None:
    mean = torch.randn(3, 6, generator=generator)
    stddev = (2 * torch.randn(3, 6, generator=generator)).exp()
    draws = mean + stddev * torch.randn(20_000, 3, 6, generator=generator)
    best = torch.nn.functional.one_hot(draws.argmax(-1), 6).double()
    found = best_arm_probabilities(mean, stddev)
    error = (found * (1 - found) / 20_000).sqrt() + 1 / 20_000
    assert_within_standard_errors(best.mean(0), found, error)


def test_an_arm_far_behind_has_a_tiny_probability_that_is_not_zero() -> None:
    found = best_arm_probabilities(torch.tensor([0.0, 20.0]), torch.ones(2))
    expected = 0.5 * math.erfc(20 / math.sqrt(2) / math.sqrt(2))
    assert_close(found[0], torch.tensor(expected), rtol=1e-3, atol=0)
