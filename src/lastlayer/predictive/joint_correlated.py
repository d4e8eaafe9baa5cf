"""Joint predictives whose outputs share correlated noise."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from .gaussian import MultivariateGaussianPredictive
from .joint import JointPredictive


class _CorrelatedOutputs(JointPredictive):
    """Outputs with noise covariance Σ = DDᵀ, D upper-triangular."""

    noise_factor: Tensor  # D, (*batch, K, K)

    @property
    @abstractmethod
    def _mixing(self) -> Tensor:
        """C, (*batch, K, K)."""

    @property
    def noise_covariance(self) -> Tensor:
        """Σ, (*batch, K, K)."""
        return self.noise_factor @ self.noise_factor.mT

    @property
    def noise_variance(self) -> Tensor:
        """Diagonal of Σ, (*batch, q, K)."""
        return self.noise_factor.square().sum(-1).unsqueeze(-2).expand_as(self.mean)

    @property
    def epistemic_variance(self) -> Tensor:
        """Σ_l C_kl² ‖a_li‖², (*batch, q, K)."""
        return self.factor.square().sum(-1).mT @ self._mixing.square().mT

    @property
    def epistemic_covariance(self) -> Tensor:
        """Σ_l C_kl² A_lA_lᵀ, (*batch, K, q, q)."""
        between = self.factor @ self.factor.mT
        return torch.einsum("...kl,...lij->...kij", self._mixing.square(), between)

    @property
    def full_covariance(self) -> Tensor:
        """Covariance of `mean.flatten(-2)`, point after point, (*batch, q·K, q·K)."""
        between, mixing = self.factor @ self.factor.mT, self._mixing
        weights = torch.einsum("...kl,...ml,...lij->...ikjm", mixing, mixing, between)
        eye = torch.eye(self.event_shape[0], dtype=self.mean.dtype, device=self.mean.device)
        noise = torch.einsum("...km,ij->...ikjm", self.noise_covariance, eye)
        return (weights + noise).flatten(-4, -3).flatten(-2)

    def marginal(self) -> MultivariateGaussianPredictive:
        """The predictive of each point by itself, of batch shape (*batch, q)."""
        squares, mixing = self.factor.square().sum(-1), self._mixing
        epistemic = torch.einsum("...kl,...ml,...li->...ikm", mixing, mixing, squares)
        noise = self.noise_covariance.unsqueeze(-3).expand_as(epistemic)
        return MultivariateGaussianPredictive(self.mean, epistemic, noise)

    def _white(self, vectors: Tensor) -> Tensor:
        """D⁻¹x, for x (*batch, K, …)."""
        return torch.linalg.solve_triangular(self.noise_factor, vectors, upper=True)

    def _log_volume(self) -> Tensor:
        diagonal = self.noise_factor.diagonal(dim1=-2, dim2=-1)
        return self.event_shape[0] * diagonal.abs().log().sum(-1)

    def _mix_weights(self, vectors: Tensor) -> Tensor:
        return vectors @ self._mixing.mT

    def _mix_noise(self, vectors: Tensor) -> Tensor:
        return vectors @ self.noise_factor.mT


@dataclass(frozen=True, eq=False, repr=False)
class JointMatrixNormalPredictive(_CorrelatedOutputs):
    """Joint Gaussian targets of the conjugate regression: covariance (I + AAᵀ) ⊗ Σ.

    Attributes:
        mean: (*batch, q, K).
        factor: A, the same for every output, (*batch, K, q, M).
        noise_factor: D, upper-triangular, with Σ = DDᵀ, (*batch, K, K).
    """

    mean: Tensor
    factor: Tensor
    noise_factor: Tensor

    def affine(self, location: Tensor, scale: Tensor) -> JointMatrixNormalPredictive:
        """The joint predictive of location + scale · y, for (K,) or (*batch, K) each."""
        noise = scale.unsqueeze(-1) * self.noise_factor
        return JointMatrixNormalPredictive(self._affine_mean(location, scale), self.factor, noise)

    def white_factor(self) -> Tensor:
        """A, the same for every output, (*batch, K, q, M)."""
        return self.factor

    @property
    def _mixing(self) -> Tensor:
        return self.noise_factor

    def _independent(self, error: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        white = self._white(error.mT)
        return white, self.factor, white.new_ones(white.shape[:-1])


@dataclass(frozen=True, eq=False, repr=False)
class JointMultivariateGaussianPredictive(_CorrelatedOutputs):
    """Joint Gaussian targets with correlated noise, and independent weights of each output.

    Attributes:
        mean: (*batch, q, K).
        factor: A_k, with A_kA_kᵀ the covariance between points due to the weights,
            (*batch, K, q, M).
        noise_factor: D, upper-triangular, with Σ = DDᵀ, (*batch, K, K).
    """

    mean: Tensor
    factor: Tensor
    noise_factor: Tensor

    def affine(self, location: Tensor, scale: Tensor) -> JointMultivariateGaussianPredictive:
        """The joint predictive of location + scale · y, for (K,) or (*batch, K) each."""
        return JointMultivariateGaussianPredictive(
            self._affine_mean(location, scale),
            scale[..., None, None] * self.factor,
            scale.unsqueeze(-1) * self.noise_factor,
        )

    @property
    def _mixing(self) -> Tensor:
        eye = torch.eye(self.mean.shape[-1], dtype=self.mean.dtype, device=self.mean.device)
        return eye.expand_as(self.noise_factor)

    def _independent(self, error: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One Gaussian over all q·K white targets: the outputs do not come apart."""
        white = self._white(self._mixing)  # D⁻¹
        factor = torch.einsum("...lk,...kim->...ilkm", white, self.factor)
        factor = factor.flatten(-4, -3).flatten(-2).unsqueeze(-3)  # (*batch, 1, q·K, K·M)
        error = self._white(error.mT).mT.flatten(-2).unsqueeze(-2)
        return error, factor, error.new_ones(error.shape[:-1])
