"""What both classification heads have in common."""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from tests.helpers.classifiers import COVARIANCES, PRIOR, K, N, T, data, discriminative, generative
from tests.helpers.reference import (
    dense_covariance,
)


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("make", [discriminative, generative], ids=["discriminative", "generative"])
def test_kl_is_that_of_normals(covariance: str, make, generator: torch.Generator) -> None:
    head = make(generator, covariance=covariance)
    posterior = MultivariateNormal(head.mean, dense_covariance(head.covariance))
    prior = MultivariateNormal(torch.zeros(N), PRIOR.fixed_variance * torch.eye(N))
    kl = head.elbo(*data(generator)).kl
    torch.testing.assert_close(kl, kl_divergence(posterior, prior).sum())


def test_weighted_examples_count_as_repeated_ones(generator: torch.Generator) -> None:
    features, target = data(generator)
    counts = torch.randint(0, 3, (T,), generator=generator)
    again = torch.repeat_interleave(torch.arange(T), counts)
    for make in (discriminative, generative):
        head = make(generator)
        weighted = head.elbo(features, target, counts.double()).bound * T
        repeated = head.elbo(features[again], target[again]).bound * len(again)
        torch.testing.assert_close(weighted, repeated)


def test_leading_dimensions_are_only_examples(generator: torch.Generator) -> None:
    features, target = data(generator, 24)
    for make in (discriminative, generative):
        head = make(generator, covariance="low_rank")
        shaped = head(features.reshape(2, 3, 4, N), target.reshape(2, 3, 4))
        torch.testing.assert_close(shaped, head(features, target))
        probs = head(features.reshape(2, 3, 4, N)).probs()
        torch.testing.assert_close(probs.reshape(24, K), head(features).probs())
