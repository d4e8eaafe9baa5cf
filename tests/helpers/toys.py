"""Predictives and heads of a user's own, with no more than they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Distribution, Independent, Laplace

import lastlayer as ll
from lastlayer import ClassificationPredictive, RegressionPredictive


@dataclass(frozen=True, eq=False)
class LaplacePredictive(RegressionPredictive):
    """Independent Laplace targets."""

    mean: Tensor
    epistemic_variance: Tensor
    noise_variance: Tensor

    def _laplace(self) -> Laplace:
        return Laplace(self.mean, (self.variance / 2).sqrt(), validate_args=False)

    def log_prob(self, target: Tensor) -> Tensor:
        return self.log_prob_per_output(target).sum(-1)

    def log_prob_per_output(self, target: Tensor) -> Tensor:
        return self._laplace().log_prob(self._target(target))

    def cdf(self, value: Tensor) -> Tensor:
        return self._laplace().cdf(self._target(value))

    def entropy(self) -> Tensor:
        return self._laplace().entropy().sum(-1)

    def mutual_information(self) -> Tensor:
        return 0.5 * (self.variance / self.noise_variance).log().sum(-1)

    def affine(self, location: Tensor, scale: Tensor) -> LaplacePredictive:
        square = scale.square()
        return type(self)(
            location + scale * self.mean,
            square * self.epistemic_variance,
            square * self.noise_variance,
        )

    def sample(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        shape = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        shape = (*shape, *self.mean.shape)
        uniform = torch.rand(shape, generator=generator, dtype=self.mean.dtype) - 0.5
        return self.mean - self.stddev / 2**0.5 * uniform.sign() * (-2 * uniform.abs()).log1p()

    def distribution(self) -> Distribution:
        return Independent(self._laplace(), 1)


@dataclass(frozen=True, eq=False)
class DirichletPredictive(ClassificationPredictive):
    """Class probabilities in proportion to counts."""

    counts: Tensor

    def log_probs(self) -> Tensor:
        return self.counts.log() - self.counts.sum(-1, keepdim=True).log()

    def temper(self, temperature: Tensor) -> DirichletPredictive:
        return DirichletPredictive(self.counts.pow(1 / temperature))


class LaplaceHead(ll.Head):
    """Regression with Laplace errors: the bound is Jensen's, of the expected absolute error."""

    def __init__(self, num_features: int, num_outputs: int, **options: Any) -> None:
        super().__init__(num_features, num_outputs, **options)
        self.log_scale = torch.nn.Parameter(torch.zeros_like(self.mean[:, 0]))
        self.reset_parameters()

    def predict(self, features: Tensor) -> LaplacePredictive:
        mean = F.linear(features, self.mean)
        noise = 2 * (2 * self.log_scale).exp()
        return LaplacePredictive(mean, self.covariance.quadratic(features), noise.expand_as(mean))

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean = F.linear(features, self.mean)
        quadratic, trace, logdet = self.covariance.quadratic_terms(features)
        target = target.reshape(mean.shape)
        errors = ((target - mean).square() + quadratic + 1e-9).sqrt()
        bounds = -(errors * (-self.log_scale).exp() + self.log_scale).sum(-1)
        if weight is not None:
            bounds = bounds * weight
        return bounds, self._divergence(self._deviation(), trace, logdet), mean.new_zeros(())


class DirichletHead(ll.Head):
    """Classification by softplus counts of the mean weights alone."""

    def __init__(self, num_features: int, num_outputs: int, **options: Any) -> None:
        super().__init__(num_features, num_outputs, **options)
        self.reset_parameters()

    @property
    def num_densities(self) -> int:
        return self.num_outputs

    def predict(self, features: Tensor) -> DirichletPredictive:
        return DirichletPredictive(1e-3 + F.softplus(F.linear(features, self.mean)))

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        bounds = self.predict(features).log_prob(target)
        if weight is not None:
            bounds = bounds * weight
        _, trace, logdet = self.covariance.quadratic_terms(features)
        return bounds, self._divergence(self._deviation(), trace, logdet), bounds.new_zeros(())
