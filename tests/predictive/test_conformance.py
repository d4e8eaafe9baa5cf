"""Every predictive, built in or brought along, passes the conformance suite."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lastlayer.predictive import (
    ClassificationPredictive,
    ClassMixturePredictive,
    DiscriminativePredictive,
    GaussianMixturePredictive,
    GaussianPredictive,
    GenerativePredictive,
    HeavyTailedPredictive,
    HeteroscedasticPredictive,
    MultivariateGaussianPredictive,
    NoisyLabelPredictive,
    RegressionMixturePredictive,
    RegressionPredictive,
    SoftmaxPredictive,
    StudentTPredictive,
)
from tests.helpers.predictive_conformance import CLASSIFICATION, REGRESSION, Check
from tests.helpers.toys import DirichletPredictive, LaplacePredictive

B, S, C, K = 3, 2, 4, 2
Make = Callable[[torch.Generator, tuple[int, ...]], Any]


Moments = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def moments(generator: torch.Generator, shape: tuple[int, ...]) -> Moments:
    mean, first, second = torch.randn(3, *shape, K, generator=generator).unbind()
    return mean, first.exp(), second.exp()


def correlated(
    generator: torch.Generator, shape: tuple[int, ...]
) -> MultivariateGaussianPredictive:
    mean, *spreads = moments(generator, shape)
    factor = torch.randn(2, *shape, K, K, generator=generator)
    return MultivariateGaussianPredictive(
        mean, *(factor @ factor.mT + torch.stack(spreads).diag_embed())
    )


def heteroscedastic(
    generator: torch.Generator, shape: tuple[int, ...]
) -> HeteroscedasticPredictive:
    mean, epistemic, noise = moments(generator, shape)
    uncertainty = 0.3 * torch.rand(mean.shape, generator=generator)
    return HeteroscedasticPredictive(mean, epistemic, noise.log(), uncertainty)


def freedom(generator: torch.Generator, shape: tuple[int, ...]) -> torch.Tensor:
    return 9 + 5 * torch.rand(*shape, K, generator=generator)  # of which fourth moments exist


def logits(generator: torch.Generator, shape: tuple[int, ...]) -> list[torch.Tensor]:
    return list(torch.randn(2, *shape, 3, generator=generator).unbind())


def noisy_labels(generator: torch.Generator, shape: tuple[int, ...]) -> NoisyLabelPredictive:
    mean, log_variance = logits(generator, shape)
    odds, spread = torch.randn(2, *shape, 1, generator=generator)
    return NoisyLabelPredictive(2 * mean, log_variance.exp(), odds - 1, spread.exp())


REGRESSIONS: dict[str, Make] = {
    "gaussian": lambda g, shape: GaussianPredictive(*moments(g, shape)),
    "correlated": correlated,
    "mixture": lambda g, shape: GaussianMixturePredictive(
        GaussianPredictive(*moments(g, (*shape, C)))
    ),
    "correlated mixture": lambda g, shape: GaussianMixturePredictive(correlated(g, (*shape, C))),
    "heteroscedastic": heteroscedastic,
    "student t": lambda g, shape: StudentTPredictive(*moments(g, shape), dof=freedom(g, shape)),
    "heavy tails": lambda g, shape: HeavyTailedPredictive(
        *moments(g, shape), dof=freedom(g, shape) + 20, noise_dof=freedom(g, shape)
    ),
    "toy": lambda g, shape: LaplacePredictive(*moments(g, shape)),
    "toy mixture": lambda g, shape: RegressionMixturePredictive(
        LaplacePredictive(*moments(g, (*shape, C)))
    ),
}
CLASSIFICATIONS: dict[str, Make] = {
    "discriminative": lambda g, shape: DiscriminativePredictive(
        2 * logits(g, shape)[0], *(part.exp() for part in logits(g, shape))
    ),
    "generative": lambda g, shape: GenerativePredictive(
        2 * logits(g, shape)[0], 2 * logits(g, shape)[0] - 1
    ),
    "noisy labels": noisy_labels,
    "softmax": lambda g, shape: SoftmaxPredictive(logits(g, shape)[0]),
    "mixture": lambda g, shape: ClassMixturePredictive(
        SoftmaxPredictive(logits(g, (*shape, C))[0])
    ),
    "toy": lambda g, shape: DirichletPredictive(logits(g, shape)[0].exp()),
    "toy mixture": lambda g, shape: ClassMixturePredictive(
        DirichletPredictive(logits(g, (*shape, C))[0].exp())
    ),
}


@pytest.mark.parametrize("check", REGRESSION, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", REGRESSIONS)
def test_every_regression_predictive_passes(
    name: str, check: Check, generator: torch.Generator
) -> None:
    predictive = REGRESSIONS[name](generator, (B, S))
    assert isinstance(predictive, RegressionPredictive)
    check(predictive, generator)


@pytest.mark.parametrize("check", CLASSIFICATION, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CLASSIFICATIONS)
def test_every_classification_predictive_passes(
    name: str, check: Check, generator: torch.Generator
) -> None:
    predictive = CLASSIFICATIONS[name](generator, (B, S))
    assert isinstance(predictive, ClassificationPredictive)
    check(predictive, generator)
