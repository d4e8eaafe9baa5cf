"""Predictives of regression: Gaussian targets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal

from .._checks import check_target
from ..functional import LOG_2PI
from ._base import Predictive, as_shape


class _Gaussian(Predictive):
    """What the two Gaussian predictives share."""

    mean: Tensor

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Variance of each target, weights and noise together, (*batch, K)."""

    @property
    def stddev(self) -> Tensor:
        """Standard deviation of each target, (*batch, K)."""
        return self.variance.sqrt()

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Lower and upper end of the central interval of each target, (*batch, K) each."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level!r}; 0.9 is 90 percent")
        upper = torch.tensor(0.5 + level / 2, dtype=torch.float64, device="cpu")
        width = torch.special.ndtri(upper) * self.stddev  # a number: does not change the dtype
        return self.mean - width, self.mean + width

    def _target(self, target: Tensor) -> Tensor:
        return check_target(target, self.batch_shape, self.mean.shape[-1])

    def _noise(
        self, sample_shape: Sequence[int] | int, generator: torch.Generator | None
    ) -> Tensor:
        shape = (*as_shape(sample_shape), *self.mean.shape)
        like = self.mean
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


@dataclass(frozen=True, eq=False)
class GaussianPredictive(_Gaussian):
    """Independent Gaussian targets.

    Attributes:
        mean: (*batch, K).
        epistemic_variance: variance due to the weights, (*batch, K).
        noise_variance: variance due to noise, (*batch, K).
    """

    mean: Tensor
    epistemic_variance: Tensor
    noise_variance: Tensor

    @property
    def variance(self) -> Tensor:
        """Variance of each target, weights and noise together, (*batch, K)."""
        return self.epistemic_variance + self.noise_variance

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
        variance = self.variance
        squares = (self._target(target) - self.mean).square() / variance
        return -0.5 * (squares + variance.log() + LOG_2PI).sum(-1)

    def entropy(self) -> Tensor:
        """Differential entropy of the targets in nats, (*batch,)."""
        return 0.5 * (self.variance.log() + LOG_2PI + 1).sum(-1)

    def mutual_information(self) -> Tensor:
        """What observing the target would tell about the weights, in nats, (*batch,)."""
        return 0.5 * (self.epistemic_variance / self.noise_variance).log1p().sum(-1)

    def sample(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws of the targets, (*sample_shape, *batch, K)."""
        return self.mean + self.stddev * self._noise(sample_shape, generator)

    def distribution(self) -> Distribution:
        """Independent normal distributions of the outputs."""
        return Independent(Normal(self.mean, self.stddev), 1)


@dataclass(frozen=True, eq=False)
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
    def variance(self) -> Tensor:
        """Variance of each target, weights and noise together, (*batch, K)."""
        return self.covariance.diagonal(dim1=-2, dim2=-1)

    @property
    def covariance(self) -> Tensor:
        """Joint covariance of the targets of an example, (*batch, K, K)."""
        return self.epistemic_covariance + self.noise_covariance

    @property
    def epistemic_variance(self) -> Tensor:
        """Variance due to the weights, (*batch, K)."""
        return self.epistemic_covariance.diagonal(dim1=-2, dim2=-1)

    @property
    def noise_variance(self) -> Tensor:
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
        """What observing the target would tell about the weights, in nats, (*batch,)."""
        noise = torch.linalg.slogdet(self.noise_covariance).logabsdet
        return 0.5 * (torch.linalg.slogdet(self.covariance).logabsdet - noise)

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
