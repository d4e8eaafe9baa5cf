"""Joint predictives whose outputs are independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..functional import expected_log_softmax
from .classes import DiscriminativePredictive
from .gaussian import GaussianPredictive
from .joint import JointPredictive


class _IndependentOutputs(JointPredictive):
    """Outputs without correlation: C = I and D = diag(σ)."""

    noise_scale: Tensor  # σ_k, (*batch, K)

    @property
    def epistemic_variance(self) -> Tensor:
        """‖a_ki‖², (*batch, q, K)."""
        return self.factor.square().sum(-1).mT

    @property
    def noise_variance(self) -> Tensor:
        """σ_k², (*batch, q, K)."""
        return self.noise_scale.square().unsqueeze(-2).expand_as(self.mean)

    @property
    def epistemic_covariance(self) -> Tensor:
        """A_kA_kᵀ, (*batch, K, q, q)."""
        return self.factor @ self.factor.mT

    @property
    def full_covariance(self) -> Tensor:
        """Covariance of `mean.flatten(-2)`, zero between outputs, (*batch, q·K, q·K)."""
        blocks = self.covariance.movedim(-3, -1).diag_embed()  # (*batch, q, q, K, K)
        return blocks.transpose(-3, -2).flatten(-4, -3).flatten(-2)

    def _independent(self, error: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return error.mT, self.factor, self.noise_scale

    def white_factor(self) -> Tensor:
        """A_k/σ_k, (*batch, K, q, M)."""
        return self.factor / self.noise_scale[..., None, None]

    def _mix_weights(self, vectors: Tensor) -> Tensor:
        return vectors

    def _mix_noise(self, vectors: Tensor) -> Tensor:
        return vectors * self.noise_scale.unsqueeze(-2)


@dataclass(frozen=True, eq=False, repr=False)
class JointGaussianPredictive(_IndependentOutputs):
    """Joint Gaussian targets of several points, with independent outputs.

    Attributes:
        mean: (*batch, q, K).
        factor: A_k, with A_kA_kᵀ the covariance between points due to the weights,
            (*batch, K, q, M).
        noise_scale: standard deviation σ_k of the noise, (*batch, K).
    """

    mean: Tensor
    factor: Tensor
    noise_scale: Tensor

    def affine(self, location: Tensor, scale: Tensor) -> JointGaussianPredictive:
        """The joint predictive of location + scale · y, for (K,) or (*batch, K) each."""
        factor = scale[..., None, None] * self.factor
        mean = self._affine_mean(location, scale)
        return JointGaussianPredictive(mean, factor, scale * self.noise_scale)

    def marginal(self) -> GaussianPredictive:
        """The predictive of each point by itself, of batch shape (*batch, q)."""
        return GaussianPredictive(self.mean, self.epistemic_variance, self.noise_variance)


@dataclass(frozen=True, eq=False, repr=False)
class JointLogitPredictive(_IndependentOutputs):
    """Joint Gaussian logits of several points; `log_prob` and the rest are those of the logits.

    Attributes:
        mean: of the logits, (*batch, q, K).
        factor: A_k, with A_kA_kᵀ the covariance between points due to the weights,
            (*batch, K, q, M).
        noise_scale: standard deviation σ_k of the label noise, (*batch, K).
    """

    mean: Tensor
    factor: Tensor
    noise_scale: Tensor

    def sample_log_probs(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Log-probabilities of the classes given drawn weights, (*sample_shape, *batch, q, K).

        Labels are independent given the weights, so a joint probability of labels is the mean
        over draws of products of these: what batch active learning needs.
        """
        logits = self.sample(sample_shape, generator, noise=False)
        return expected_log_softmax(logits, self.noise_variance.expand_as(logits))

    def affine(self, location: Tensor, scale: Tensor) -> JointLogitPredictive:
        """The same predictive: labels have no units."""
        return self

    def marginal(self) -> DiscriminativePredictive:
        """The predictive of each point by itself, of batch shape (*batch, q)."""
        return DiscriminativePredictive(self.mean, self.epistemic_variance, self.noise_variance)
