r"""Joint predictives: one Gaussian over several points together.

A draw at q points of K outputs is $y_i = \bar y_i + C\,(a_{1i}^\top z_1, …, a_{Ki}^\top z_K) +
D\varepsilon_i$ with standard normal z and ε: what is uncertain about the weights, common to all
points, and the noise, of each point its own. The factors A_k = (a_ki)_i are kept instead of the
covariances A_kA_kᵀ between points: nothing is of size q² unless it is asked for, and repeated
points, which make A_kA_kᵀ singular, need no care.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from .._checks import check_target
from ..functional import low_rank_entropy, low_rank_information, low_rank_log_density
from ._base import Predictive, as_shape


class JointPredictive(Predictive):
    """A batch of Gaussians, each over q points of K outputs together.

    The dimension of the points is no leading dimension: indices choose among Gaussians.
    """

    mean: Tensor  # (*batch, q, K)
    factor: Tensor  # A_k, (*batch, K, q, M)

    @property
    def batch_shape(self) -> torch.Size:
        """The leading dimensions, before that of the points."""
        return self.mean.shape[:-2]

    @property
    def event_shape(self) -> torch.Size:
        """Points and outputs, (q, K)."""
        return self.mean.shape[-2:]

    @property
    @abstractmethod
    def epistemic_variance(self) -> Tensor:
        """Variance due to the weights, (*batch, q, K)."""

    @property
    @abstractmethod
    def noise_variance(self) -> Tensor:
        """Variance due to noise, (*batch, q, K)."""

    @property
    def variance(self) -> Tensor:
        """Variance of each target, weights and noise together, (*batch, q, K)."""
        return self.epistemic_variance + self.noise_variance

    @property
    @abstractmethod
    def epistemic_covariance(self) -> Tensor:
        """Covariance between points due to the weights, of each output, (*batch, K, q, q)."""

    @property
    def covariance(self) -> Tensor:
        """Covariance between points, of each output, (*batch, K, q, q)."""
        return self.epistemic_covariance + self.noise_variance.mT.diag_embed()

    @property
    @abstractmethod
    def full_covariance(self) -> Tensor:
        """Covariance of `mean.flatten(-2)`, point after point, (*batch, q·K, q·K)."""

    @abstractmethod
    def marginal(self) -> Predictive:
        """The predictive of each point by itself, as `head(features)` returns it."""

    @abstractmethod
    def affine(self, location: Tensor, scale: Tensor) -> JointPredictive:
        """The joint predictive of location + scale · y, for (K,) or (*batch, K) each."""

    def _affine_mean(self, location: Tensor, scale: Tensor) -> Tensor:
        return location.unsqueeze(-2) + scale.unsqueeze(-2) * self.mean

    # ------------------------------------------------------------------------------- density

    @abstractmethod
    def _independent(self, error: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Independent Gaussians of the same density: errors, factors and noise scales."""

    def _log_volume(self) -> Tensor | float:
        """Logarithm by which volumes shrink on the way to those Gaussians, (*batch,)."""
        return 0.0

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-density of the targets, joint over points and outputs, (*batch,)."""
        target = check_target(target, self.mean.shape[:-1], self.mean.shape[-1])
        terms = low_rank_log_density(*self._independent(target - self.mean))
        return terms.sum(-1) - self._log_volume()

    def entropy(self) -> Tensor:
        """Differential entropy of all targets together in nats, (*batch,)."""
        _, factor, scale = self._independent(torch.zeros_like(self.mean))
        return low_rank_entropy(factor, scale).sum(-1) + self._log_volume()

    def mutual_information(self) -> Tensor:
        """Mutual information of all targets and the weights in nats, (*batch,).

        ½ log|I + Σ⁻¹ Cov(Wφ)|, which counts once what several points tell alike.
        """
        _, factor, scale = self._independent(torch.zeros_like(self.mean))
        return low_rank_information(factor, scale).sum(-1)

    def white_factor(self) -> Tensor:
        """B_k with I + B_kB_kᵀ the covariance of q targets of unit noise, (*batch, K, q, M).

        Of outputs that are independent, if need be after a rotation: `mutual_information` is
        the sum of ½ log|I + B_kB_kᵀ|.
        """
        raise self._lacks(
            "independent outputs",
            "those of noise='diagonal' or of row_covariance='noise' have: use one of these",
        )

    def distribution(self) -> Distribution:
        """The multivariate normal distribution of all targets, flattened point after point."""
        return MultivariateNormal(self.mean.flatten(-2), self.full_covariance)

    # --------------------------------------------------------------------------------- draws

    @abstractmethod
    def _mix_weights(self, vectors: Tensor) -> Tensor:
        """Cx, for x (…, *batch, q, K)."""

    @abstractmethod
    def _mix_noise(self, vectors: Tensor) -> Tensor:
        """Dx, for x (…, *batch, q, K)."""

    def base_shape(self, *, noise: bool = True) -> torch.Size:
        """Shape of the standard normal numbers of one draw, (*batch, K·M + q·K).

        The first K·M stand for the weights, the rest, absent without noise, for the noise.
        """
        return torch.Size((*self.batch_shape, self._num_weights + noise * self.event_shape.numel()))

    @property
    def _num_weights(self) -> int:
        return self.factor.shape[-3] * self.factor.shape[-1]

    def sample(
        self,
        sample_shape: Sequence[int] | int = (),
        generator: torch.Generator | None = None,
        *,
        noise: bool = True,
    ) -> Tensor:
        """Draws of the targets, differentiable, (*sample_shape, *batch, q, K).

        Without noise they are draws of the function Wφ at the points.
        """
        shape = (*as_shape(sample_shape), *self.base_shape(noise=noise))
        like = self.mean
        base = torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
        return self.sample_from(base, noise=noise)

    def sample_from(self, base: Tensor, *, noise: bool = True) -> Tensor:
        """Draws from given standard normal numbers, (*sample_shape, *batch, q, K).

        Equal numbers mean equal weights, so without noise they draw the same function, whatever
        the points are: what is averaged over fixed numbers is a smooth function of the points.

        Args:
            base: (*sample_shape, *base_shape); leading dimensions of size one are broadcast.
            noise: whether to add noise, which takes the last q·K numbers.
        """
        num_batch, (num_points, num_outputs) = len(self.batch_shape), self.event_shape
        if base.ndim <= num_batch or base.shape[-1] != self.base_shape(noise=noise)[-1]:
            raise ValueError(
                f"base must end in {tuple(self.base_shape(noise=noise))}, the base_shape, "
                f"got {tuple(base.shape)}"
            )
        sample_shape = base.shape[: base.ndim - num_batch - 1]
        base = base.reshape(math.prod(sample_shape), *base.shape[len(sample_shape) :])
        weights = base[..., : self._num_weights].unflatten(-1, (num_outputs, -1))
        draws = self.factor @ weights.movedim(0, -1)  # (*batch, K, q, S): one product for all draws
        values = self.mean + self._mix_weights(draws.movedim(-1, 0).mT)
        if noise:
            errors = base[..., self._num_weights :].unflatten(-1, (num_points, num_outputs))
            values = values + self._mix_noise(errors)
        return values.reshape(*sample_shape, *self.mean.shape)
