"""One unrestricted covariance for all outputs."""

from typing import Any

import torch
from torch import Tensor

from ..functional import GaussianPrecision, gaussian_log_densities
from ._base import Covariance, QuadraticTerms
from .dense import Dense


class Shared(Covariance):
    """S_k = S: the matrix-normal posterior of the paper, at the price of a single output."""

    shared = True
    full = True

    def __init__(self, num_outputs: int, num_features: int, **factory: Any) -> None:
        super().__init__(num_outputs, num_features)
        self.common = Dense(1, num_features, **factory)

    def set_isotropic(self, variance: float) -> None:
        """Initialise at S = variance · I."""
        self.common.set_isotropic(variance)

    def quadratic(self, features: Tensor) -> Tensor:
        """φᵀSφ, the same for every output, (*batch, K)."""
        return self.common.quadratic(features).expand(*features.shape[:-1], self.num_outputs)

    def quadratic_terms(self, features: Tensor) -> QuadraticTerms:
        """The terms of S, with trace and log-determinant K times."""
        quadratic, trace, logdet = self.common.quadratic_terms(features)
        quadratic = quadratic.expand(*features.shape[:-1], self.num_outputs)
        return QuadraticTerms(quadratic, self.num_outputs * trace, self.num_outputs * logdet)

    def bilinear(self, left: Tensor, right: Tensor) -> Tensor:
        """φᵀSφ′ of all pairs, the same for every output, (*batch, K, q, p)."""
        pairs = self.common.bilinear(left, right)
        return pairs.expand(*pairs.shape[:-3], self.num_outputs, -1, -1)

    def root_products(self, features: Tensor) -> Tensor:
        """Rφ with S = RᵀR, the same for every output, (*batch, K, N)."""
        return self.common.root_products(features).expand(
            *features.shape[:-1], self.num_outputs, -1
        )

    def dense(self) -> Tensor:
        """The matrix S, K times, (K, N, N)."""
        return self.common.dense().expand(self.num_outputs, -1, -1)

    def diagonal(self) -> Tensor:
        """The diagonal of S, K times, (K, N)."""
        return self.common.diagonal().expand(self.num_outputs, -1)

    def trace(self) -> Tensor:
        """tr S, K times, (K,)."""
        return self.common.trace().expand(self.num_outputs)

    def logdet(self) -> Tensor:
        """log|S|, K times, (K,)."""
        return self.common.logdet().expand(self.num_outputs)

    def marginal_log_density(
        self, features: Tensor, mean: Tensor, noise_variance: Tensor
    ) -> Tensor:
        """log N(φ | μ_k, S + diag(σ²)), (*batch, K), with one factorisation for all classes."""
        total = self.common.dense().squeeze(0) + noise_variance.diag_embed()
        factor = torch.linalg.cholesky(total)
        flat = features.reshape(-1, self.num_features)
        white = torch.linalg.solve_triangular(factor.mT, flat, upper=True, left=False)
        white_mean = torch.linalg.solve_triangular(factor.mT, mean, upper=True, left=False)
        unit = torch.ones_like(white_mean)
        logdet = -2 * factor.diagonal().log().sum().expand(self.num_outputs)
        density = gaussian_log_densities(white, white_mean, GaussianPrecision(unit, None, logdet))
        return density.reshape(*features.shape[:-1], self.num_outputs)

    def _cholesky(self) -> Tensor:
        return self.common._cholesky().expand(self.num_outputs, -1, -1)

    @torch.no_grad()
    def project(self, precision: Tensor) -> None:
        """Become the inverse of the mean precision."""
        self.common.project(precision.mean(0, keepdim=True))

    def project_examples(self, features: Tensor, weights: Tensor, ridge: Tensor) -> None:
        """Become the inverse of the mean precision, from one matrix."""
        self.common.project_examples(features, weights.mean(-1, keepdim=True), ridge)
