"""The discriminative head against sampling and limits."""

import itertools

import pytest
import torch
from torch import Tensor

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
