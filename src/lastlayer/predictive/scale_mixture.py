"""Predictives of regression with one mean and an uncertain variance: heavier tails."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import (
    Categorical,
    Distribution,
    Independent,
    MixtureSameFamily,
    Normal,
)

from ..functional import LOG_2PI, scale_mixtures
from ._base import as_shape
from ._quantiles import as_mass, check_level
from .gaussian import GaussianPredictive
from .gaussian_mixture import GaussianMixturePredictive
from .regression import RegressionPredictive


class ScaleMixture(RegressionPredictive):
    """Independent targets y = mean + √V z, z ~ N(0, 1), with random variances V by quadrature."""

    @abstractmethod
    def _components(self) -> tuple[Tensor, Tensor]:
        """Variances V_c, (*batch, K, C), and their log-probabilities, which broadcast to them."""

    @property
    def covariance(self) -> Tensor:
        """Joint covariance of the targets of an example, (*batch, K, K)."""
        return self.variance.diag_embed()

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-density of the targets, joint over outputs, (*batch,)."""
        return self.log_prob_per_output(target).sum(-1)

    def log_prob_per_output(self, target: Tensor) -> Tensor:
        """Log-density of each target, (*batch, K)."""
        return scale_mixtures.log_density(self._target(target) - self.mean, *self._components())

    def cdf(self, value: Tensor) -> Tensor:
        """Probability of each target to lie below a value, (*batch, K)."""
        return scale_mixtures.tail_mass(self.mean - self._target(value), *self._components())

    def quantile(self, mass: float | Tensor) -> Tensor:
        """Quantile of each target at a mass, (*batch, K)."""
        mass = as_mass(mass)
        tail = torch.minimum(mass, 1 - mass)
        distance = scale_mixtures.tail_distance(tail, *self._components())
        return self.mean + torch.where(mass < 0.5, -1.0, 1.0) * distance

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Lower and upper end of the central interval of each target, (*batch, K) each."""
        check_level(level)
        tail = as_mass((1 - level) / 2)
        distance = scale_mixtures.tail_distance(tail, *self._components())
        return self.mean - distance, self.mean + distance

    def crps(self, target: Tensor) -> Tensor:
        """Continuous ranked probability score of each target, in its units, (*batch, K)."""
        distance = self._target(target) - self.mean
        return scale_mixtures.scale_mixture_crps(distance, *self._components())

    def entropy(self) -> Tensor:
        """Differential entropy of the targets in nats, (*batch,)."""
        return scale_mixtures.scale_mixture_entropy(*self._components()).sum(-1)

    def _quantiles(self) -> Tensor:
        """Values between which the distribution function rises, ascending, (points, *batch, K)."""
        distances = scale_mixtures.spread_distances(*self._components())[0][::2]
        return self.mean + torch.cat([-distances[1:].flip(0), distances])

    def distribution(self) -> Distribution:
        """Independent mixtures of normal distributions."""
        variances, log_probs = self._components()
        weights = Categorical(logits=log_probs.expand_as(variances))
        normals = Normal(self.mean.unsqueeze(-1), variances.sqrt())
        return Independent(MixtureSameFamily(weights, normals), 1)

    def _normal(
        self, sample_shape: Sequence[int] | int, generator: torch.Generator | None
    ) -> Tensor:
        shape, like = (*as_shape(sample_shape), *self.mean.shape), self.mean
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


@dataclass(frozen=True, eq=False, repr=False)
class HeteroscedasticPredictive(ScaleMixture):
    """Independent Gaussian targets with noise of an uncertain, log-normal variance.

    Attributes:
        mean: (*batch, K).
        epistemic_variance: variance due to the weights, (*batch, K).
        log_noise_mean: mean of the log-variance of the noise, (*batch, K).
        log_noise_variance: its variance, how uncertain the noise is, (*batch, K).
    """

    scalings = ("VarianceScaling", "TailScaling")
    mean: Tensor
    epistemic_variance: Tensor
    log_noise_mean: Tensor
    log_noise_variance: Tensor

    @property
    def noise_variance(self) -> Tensor:  # type: ignore[override]
        """Variance due to noise: the mean of its log-normal distribution, (*batch, K)."""
        return (self.log_noise_mean + 0.5 * self.log_noise_variance).exp()

    @property
    def noise_variance_stddev(self) -> Tensor:
        """Standard deviation of the variance of the noise, which more data would reduce."""
        return self.noise_variance * self.log_noise_variance.expm1().sqrt()

    def mutual_information(self) -> Tensor:
        """Mutual information of the target and the weights, of mean and noise, in nats, (*batch,).

        Entropy of the target less that of noise of known variance.
        """
        return self.entropy() - 0.5 * (self.log_noise_mean + LOG_2PI + 1).sum(-1)

    def affine(self, location: Tensor, scale: Tensor) -> HeteroscedasticPredictive:
        """The predictive of location + scale · y."""
        return HeteroscedasticPredictive(
            location + scale * self.mean,
            scale.square() * self.epistemic_variance,
            self.log_noise_mean + 2 * scale.log(),
            self.log_noise_variance,
        )

    def with_tails(self, factors: Tensor) -> GaussianMixturePredictive:
        """The mixture over components with variances times c_sk, (S, K).

        The variance of the noise is taken at its mean: how uncertain it is makes tails heavier,
        which factors fitted to held-out data do already.
        """
        parts = GaussianPredictive(self.mean, self.epistemic_variance, self.noise_variance)
        return parts.with_tails(factors)

    def sample(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws of the targets, (*sample_shape, *batch, K)."""
        spread = self.log_noise_variance.sqrt() * self._normal(sample_shape, generator)
        stddev = (self.epistemic_variance + (self.log_noise_mean + spread).exp()).sqrt()
        return self.mean + stddev * self._normal(sample_shape, generator)

    def _components(self) -> tuple[Tensor, Tensor]:
        nodes, log_probs = scale_mixtures.normal_nodes(self.mean)
        spread = self.log_noise_variance.sqrt().unsqueeze(-1) * nodes
        noise = (self.log_noise_mean.unsqueeze(-1) + spread).exp()
        return self.epistemic_variance.unsqueeze(-1) + noise, log_probs
