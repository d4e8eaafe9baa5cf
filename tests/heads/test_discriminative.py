"""The discriminative head against sampling and limits."""

import itertools

import pytest
import torch
from torch import Tensor

from lastlayer import functional
from tests.helpers.classifiers import COVARIANCES, data, discriminative
from tests.helpers.reference import (
    assert_within_standard_errors,
    sampled,
)


@pytest.mark.parametrize(
    ("covariance", "bound", "noise"),
    list(itertools.product(COVARIANCES, ["jensen", "tilted"], ["diagonal", "none"])),
)
def test_discriminative_bound_is_below_what_it_bounds(
    covariance: str, bound: str, noise: str, generator: torch.Generator
) -> None:
    features, target = data(generator, 6)
    head = discriminative(generator, covariance=covariance, bound=bound, noise=noise)
    sigma = 0.0 if head.noise is None else head.noise.variance()

    def log_likelihood(count: int) -> Tensor:
        weights = head.mean + head.covariance.sample(count, generator)
        logits = torch.einsum("ckn,bn->cbk", weights, features)
        label_noise = torch.randn(logits.shape, generator=generator) * torch.as_tensor(sigma).sqrt()
        logits = (logits + label_noise).log_softmax(-1)
        return logits[:, torch.arange(6), target].mean(-1)

    with torch.no_grad():
        mean, error = sampled(log_likelihood)
        assert head.elbo(features, target).bound < mean + 4 * error


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


@pytest.mark.parametrize("bound", ["jensen", "tilted"])
def test_discriminative_bounds_are_tight_without_uncertainty(
    bound: str, generator: torch.Generator
) -> None:
    features, target = data(generator)
    head = discriminative(generator, bound=bound, noise="none")
    head.covariance.set_isotropic(1e-16)
    plain = -torch.nn.functional.cross_entropy(features @ head.mean.mT, target)
    torch.testing.assert_close(head.elbo(features, target).bound, plain)
    torch.testing.assert_close(head(features).probs(), (features @ head.mean.mT).softmax(-1))


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


@pytest.mark.parametrize("noise", ["diagonal", "none"])
def test_discriminative_predictive_agrees_with_sampled_weights(
    noise: str, generator: torch.Generator
) -> None:
    features, _ = data(generator, 3)
    head = discriminative(generator, noise=noise, bias=True)
    predictive = head(features)
    padded = torch.cat([features, torch.ones(3, 1)], -1)
    sigma = 0.0 if head.noise is None else head.noise.variance()

    def probs(count: int) -> Tensor:
        weights = head.mean + head.covariance.sample(count, generator)
        logits = torch.einsum("ckn,bn->cbk", weights, padded)
        label_noise = torch.randn(logits.shape, generator=generator) * torch.as_tensor(sigma).sqrt()
        return (logits + label_noise).softmax(-1)

    with torch.no_grad():
        mean, error = sampled(probs)
        assert_within_standard_errors(predictive.probs(), mean, error + 1e-4)
        drawn = predictive.probs(num_samples=50_000, generator=generator)
        assert_within_standard_errors(drawn, mean, 2 * error)
        again = torch.Generator().manual_seed(3)
        first = predictive.probs(num_samples=7, generator=again)
        again.manual_seed(3)
        torch.testing.assert_close(first, predictive.probs(num_samples=7, generator=again))


@pytest.mark.slow
def test_sampled_logits_have_the_moments_of_the_posterior(generator: torch.Generator) -> None:
    features, _ = data(generator, 3)
    head = discriminative(generator, bias=True, covariance="kronecker")
    with torch.no_grad():
        draws = torch.stack([head.sample_function(generator)(features) for _ in range(4_000)])
        predictive = head(features)
        assert_within_standard_errors(
            predictive.logit_mean, draws.mean(0), draws.std(0) / 4_000**0.5
        )
        squares = (draws - predictive.logit_mean).square()
        error = squares.std(0) / 4_000**0.5
        assert_within_standard_errors(predictive.epistemic_variance, squares.mean(0), error)
