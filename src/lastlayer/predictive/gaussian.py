"""Gaussian predictives of regression, with independent or correlated outputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal

from ..functional import LOG_2PI, gaussian_crps
from ._base import as_shape
from ._quantiles import as_mass, check_level
from .gaussian_mixture import GaussianMixturePredictive
from .regression import RegressionPredictive


class _Gaussian(RegressionPredictive):
    """The base class of both Gaussian predictives."""

    @property
    @abstractmethod
    def covariance(self) -> Tensor:
        """Joint covariance of the targets of an example, (*batch, K, K)."""

    def cdf(self, value: Tensor) -> Tensor:
        """Probability of each target to lie below a value, (*batch, K)."""
        score = (self._target(value) - self.mean) / self.stddev
        return 0.5 * torch.erfc(-(0.5**0.5) * score)  # ndtr has no digits far below

    def quantile(self, mass: float | Tensor) -> Tensor:
        """Quantile of each target at a mass, (*batch, K)."""
        return self.mean + torch.special.ndtri(as_mass(mass)) * self.stddev

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Lower and upper end of the central interval of each target, (*batch, K) each."""
        check_level(level)
        width = torch.special.ndtri(as_mass(0.5 + level / 2)) * self.stddev
        return self.mean - width, self.mean + width

    def crps(self, target: Tensor) -> Tensor:
        """Continuous ranked probability score of each target, in its units, (*batch, K)."""
        return gaussian_crps(self.mean, self.stddev, self._target(target))

    def _noise(
        self, sample_shape: Sequence[int] | int, generator: torch.Generator | None
    ) -> Tensor:
        shape = (*as_shape(sample_shape), *self.mean.shape)
        like = self.mean
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


@dataclass(frozen=True, eq=False, repr=False)
class GaussianPredictive(_Gaussian):
    """Independent Gaussian targets.

    Attributes:
        mean: (*batch, K).
        epistemic_variance: variance due to the weights, (*batch, K).
        noise_variance: variance due to noise, (*batch, K).
    """

    scalings = ("TailScaling", "VarianceScaling")
    mean: Tensor
    epistemic_variance: Tensor
    noise_variance: Tensor

    def has_certain_weights(self) -> bool:
        """Whether no mean varies with the weights."""
        return self.mean.numel() > 0 and not bool(self.epistemic_variance.any())

    @property
    def covariance(self) -> Tensor:
        """Joint covariance of the targets of an example, (*batch, K, K)."""
        return self.variance.diag_embed()

    @property
    def epistemic_covariance(self) -> Tensor:
        """Covariance due to the weights, (*batch, K, K)."""
        return self.epistemic_variance.diag_embed()

    @property
    def noise_covariance(self) -> Tensor:
        """Covariance due to noise, (*batch, K, K)."""
        return self.noise_variance.diag_embed()

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-density of the targets, joint over outputs, (*batch,)."""
        return self.log_prob_per_output(target).sum(-1)

    def log_prob_per_output(self, target: Tensor) -> Tensor:
        """Log-density of each target, (*batch, K)."""
        variance = self.variance
        squares = (self._target(target) - self.mean).square() / variance
        return -0.5 * (squares + variance.log() + LOG_2PI)

    def entropy(self) -> Tensor:
        """Differential entropy of the targets in nats, (*batch,)."""
        return 0.5 * (self.variance.log() + LOG_2PI + 1).sum(-1)

    def mutual_information(self) -> Tensor:
        """Mutual information of the target and the weights in nats, (*batch,)."""
        return 0.5 * (self.epistemic_variance / self.noise_variance).log1p().sum(-1)

    def affine(self, location: Tensor, scale: Tensor) -> GaussianPredictive:
        """The predictive of location + scale · y."""
        return replace(self._scaled(scale.square()), mean=location + scale * self.mean)

    def scale_variance(self, factor: Tensor) -> GaussianPredictive:
        """The predictive with variances times c_k, (K,)."""
        return self._scaled(factor)

    def with_tails(self, factors: Tensor) -> GaussianMixturePredictive:
        """The mixture over components with variances times c_sk, (S, K)."""
        parts = self.map(lambda t: t.unsqueeze(-2).expand(*t.shape[:-1], *factors.shape))
        return parts._scaled(factors)._mixed()

    def _scaled(self, factor: Tensor) -> GaussianPredictive:
        return GaussianPredictive(
            self.mean, factor * self.epistemic_variance, factor * self.noise_variance
        )

    def _mixed(self) -> GaussianMixturePredictive:
        return GaussianMixturePredictive(self)

    def sample(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws of the targets, (*sample_shape, *batch, K)."""
        return self.mean + self.stddev * self._noise(sample_shape, generator)

    def distribution(self) -> Distribution:
        """Independent normal distributions of the outputs."""
        return Independent(Normal(self.mean, self.stddev), 1)


@dataclass(frozen=True, eq=False, repr=False)
class MultivariateGaussianPredictive(_Gaussian):
    """Correlated Gaussian targets.

    Attributes:
        mean: (*batch, K).
        epistemic_covariance: covariance due to the weights, (*batch, K, K).
        noise_covariance: covariance due to noise, (*batch, K, K).
    """

    mean: Tensor
    epistemic_covariance: Tensor
    noise_covariance: Tensor

    @property
    def covariance(self) -> Tensor:
        """Joint covariance of the targets of an example, (*batch, K, K)."""
        return self.epistemic_covariance + self.noise_covariance

    @property
    def epistemic_variance(self) -> Tensor:  # type: ignore[override]
        """Variance due to the weights, (*batch, K)."""
        return self.epistemic_covariance.diagonal(dim1=-2, dim2=-1)

    @property
    def noise_variance(self) -> Tensor:  # type: ignore[override]
        """Variance due to noise, (*batch, K)."""
        return self.noise_covariance.diagonal(dim1=-2, dim2=-1)

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-density of the targets, joint over outputs, (*batch,)."""
        factor = torch.linalg.cholesky(self.covariance)
        error = (self._target(target) - self.mean).unsqueeze(-1)
        white = torch.linalg.solve_triangular(factor, error, upper=False).squeeze(-1)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log()
        return -0.5 * (white.square() + logdet + LOG_2PI).sum(-1)

    def entropy(self) -> Tensor:
        """Differential entropy of the targets in nats, (*batch,)."""
        constant = self.mean.shape[-1] * (LOG_2PI + 1)
        return 0.5 * (torch.linalg.slogdet(self.covariance).logabsdet + constant)

    def mutual_information(self) -> Tensor:
        """Mutual information of the target and the weights in nats, (*batch,)."""
        noise = torch.linalg.slogdet(self.noise_covariance).logabsdet
        return 0.5 * (torch.linalg.slogdet(self.covariance).logabsdet - noise)

    def affine(self, location: Tensor, scale: Tensor) -> MultivariateGaussianPredictive:
        """The predictive of location + scale · y."""
        return replace(self._scaled(scale), mean=location + scale * self.mean)

    def scale_variance(self, factor: Tensor) -> MultivariateGaussianPredictive:
        """The predictive with variances times c_k, (K,), and the same correlations."""
        return self._scaled(factor.sqrt())

    def standardized_squares(self, target: Tensor) -> Tensor:
        """r_k (C⁻¹)_kl r_l, with r the errors and C the covariance, (*batch, K, K)."""
        error = self._target(target) - self.mean
        precision = torch.cholesky_inverse(torch.linalg.cholesky(self.covariance))
        return error.unsqueeze(-1) * precision * error.unsqueeze(-2)

    def _scaled(self, scale: Tensor) -> MultivariateGaussianPredictive:
        outer = scale.unsqueeze(-1) * scale.unsqueeze(-2)
        return MultivariateGaussianPredictive(
            self.mean, outer * self.epistemic_covariance, outer * self.noise_covariance
        )

    def _mixed(self) -> GaussianMixturePredictive:
        return GaussianMixturePredictive(self)

    def sample(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws of the targets, (*sample_shape, *batch, K)."""
        factor = torch.linalg.cholesky(self.covariance)
        noise = self._noise(sample_shape, generator).unsqueeze(-1)
        return self.mean + (factor @ noise).squeeze(-1)

    def distribution(self) -> Distribution:
        """The multivariate normal distribution of the outputs."""
        return MultivariateNormal(self.mean, self.covariance)
