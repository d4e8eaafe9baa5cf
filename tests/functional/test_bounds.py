"""Bounds on the expected log-probability of a label against sampling."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.distributions import Dirichlet

from lastlayer import functional
from tests.helpers.classifiers import K
from tests.helpers.reference import assert_within_standard_errors, sampled


@pytest.mark.parametrize("num_classes", [2, 3, 10, 100])
@pytest.mark.parametrize("variance", [1e-3, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("spread", [0.0, 1.0, 10.0])
def test_tilted_bound_lies_between_jensen_and_the_truth(
    num_classes: int, variance: float, spread: float, generator: torch.Generator
) -> None:
    mean = spread * torch.randn(8, num_classes, generator=generator)
    scale = variance * torch.rand(8, num_classes, generator=generator)
    target = torch.randint(0, num_classes, (8,), generator=generator)
    jensen = functional.jensen_bound(mean, scale, target)
    tilted = functional.tilted_bound(mean, scale, target)
    assert (tilted >= jensen - 1e-12).all()
    if variance >= 1 and spread <= 1:
        assert (tilted - jensen).max() > 1e-3  # and not only equal to it

    def log_likelihood(count: int) -> Tensor:
        logits = mean + scale.sqrt() * torch.randn(count, *mean.shape, generator=generator)
        return logits.log_softmax(-1)[:, torch.arange(8), target]

    truth, error = sampled(log_likelihood, 10_000, 5_000)
    assert (tilted <= truth + 5 * error).all()


def test_tilted_bound_has_the_gradient_of_its_value_at_the_optimum(
    generator: torch.Generator,
) -> None:
    """The tilt is a constant in backward, which is exact where it is optimal."""
    mean = torch.randn(3, 4, generator=generator, requires_grad=True)
    variance = torch.rand(3, 4, generator=generator).add(0.1).requires_grad_()
    target = torch.tensor([0, 1, 3])
    value = functional.tilted_bound(mean, variance, target).sum()
    gradients = torch.autograd.grad(value, [mean, variance])
    for tensor, gradient in zip((mean, variance), gradients, strict=True):
        for index in itertools.product(range(3), range(4)):
            step = torch.zeros(3, 4)
            step[index] = 1e-4
            sides = []
            for sign in (1, -1):
                inputs = [
                    t.detach() + (sign * step if t is tensor else 0) for t in (mean, variance)
                ]
                sides.append(functional.tilted_bound(inputs[0], inputs[1], target).sum())
            numeric = (sides[0] - sides[1]) / 2e-4
            torch.testing.assert_close(gradient[index], numeric, rtol=1e-3, atol=1e-4)


def test_dirichlet_terms_are_expectations_under_the_class_posterior(
    generator: torch.Generator,
) -> None:
    alpha = 1 + 5 * torch.rand(K, generator=generator)
    flat = torch.zeros(K, K)  # no feature speaks: what is left is the class posterior
    value = functional.generative_bound(
        torch.zeros(K), torch.zeros(K), flat, alpha, torch.arange(K)
    )
    # − log Σ_k α_k cancels + log α_*, and E log ρ_y = ψ(α_y) − ψ(α_*) remains
    draws = Dirichlet(alpha).sample((100_000,)).log()
    mean, error = draws.mean(0), draws.std(0) / 100_000**0.5
    assert_within_standard_errors(value, mean, error)
