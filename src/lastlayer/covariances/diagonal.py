"""Independent weights."""

from typing import Any

import torch
from torch import Tensor, nn

from ..functional import (
    GaussianPrecision,
    at_least_float32,
    exponential,
    full_precision,
    gaussian_log_densities,
)
from ._base import Covariance, MarginalTerms, QuadraticTerms


class Diagonal(Covariance):
    """S_k = diag(s_k²): as cheap as a second linear layer."""

    axis_aligned = True

    def __init__(self, num_outputs: int, num_features: int, **factory: Any) -> None:
        super().__init__(num_outputs, num_features)
        self.log_variance = nn.Parameter(torch.zeros(num_outputs, num_features, **factory))

    @torch.no_grad()
    def set_isotropic(self, variance: float) -> None:
        """Initialise at S_k = variance · I."""
        self.log_variance.fill_(variance).log_()

    def quadratic(self, features: Tensor) -> Tensor:
        """Σ_n s_kn² φ_n², (*batch, K)."""
        return at_least_float32(features).square() @ self.diagonal().mT

    def bilinear(self, left: Tensor, right: Tensor) -> Tensor:
        """Σ_n s_kn² φ_nφ′_n of all pairs, (*batch, K, q, p)."""
        scaled = at_least_float32(left).unsqueeze(-3) * self.diagonal().unsqueeze(-2)
        with full_precision(left):
            return scaled @ at_least_float32(right).unsqueeze(-3).mT

    def root_products(self, features: Tensor) -> Tensor:
        """s_kφ, (*batch, K, N)."""
        stddev = (0.5 * at_least_float32(self.log_variance)).exp()
        return at_least_float32(features).unsqueeze(-2) * stddev

    def dense(self) -> Tensor:
        """The matrices S_k, (K, N, N)."""
        return self.diagonal().diag_embed()

    def diagonal(self) -> Tensor:
        """s_k², (K, N)."""
        return exponential(at_least_float32(self.log_variance))

    def logdet(self) -> Tensor:
        """log|S_k|, (K,)."""
        return at_least_float32(self.log_variance).sum(-1)

    def sample(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws from N(0, S_k), (num_samples, K, N)."""
        stddev = self.diagonal().sqrt()
        return stddev * self._standard_normal(num_samples, stddev, generator).squeeze(-1)

    def quadratic_terms(self, features: Tensor) -> QuadraticTerms:
        """Quadratic, trace and log-determinant, computing s_k² once."""
        variance = self.diagonal()
        quadratic = at_least_float32(features).square() @ variance.mT
        return QuadraticTerms(quadratic, variance.sum(), self.logdet().sum())

    def marginal_log_density(
        self, features: Tensor, mean: Tensor, noise_variance: Tensor
    ) -> Tensor:
        """log N(φ | μ_k, diag(s_k² + σ²)), (*batch, K), as two matrix products."""
        return self.marginal_terms(features, mean, noise_variance).log_density

    def marginal_terms(
        self, features: Tensor, mean: Tensor, noise_variance: Tensor
    ) -> MarginalTerms:
        """Log-densities, traces and log-determinant, computing s_k² once."""
        variance = self.diagonal().to(noise_variance.dtype)
        total = variance + noise_variance
        precision = GaussianPrecision(total.reciprocal(), None, -total.log().sum(-1))
        density = gaussian_log_densities(features, mean, precision)
        scaled_trace = variance @ noise_variance.reciprocal()
        return MarginalTerms(density, scaled_trace, variance.sum(), self.logdet().sum())

    def project(self, precision: Tensor) -> None:
        """Become the inverse of the precisions' diagonals."""
        self.project_diagonal(precision.diagonal(dim1=-2, dim2=-1))

    def project_examples(self, features: Tensor, weights: Tensor, ridge: Tensor) -> None:
        """Become the inverse of ridge + Σ_t c_tkφ_t²."""
        self.project_diagonal(weights.double().mT @ features.double().square() + ridge)

    @torch.no_grad()
    def project_diagonal(self, precision: Tensor) -> None:
        """Become the inverse of diagonal precisions, (K, N)."""
        self.log_variance.copy_(precision.log().neg())
