"""One unrestricted covariance, scaled per output."""

from typing import Any

import torch
from torch import Tensor, nn

from ..functional import at_least_float32
from ._base import Covariance, QuadraticTerms
from .dense import Dense


class Kronecker(Covariance):
    """S_k = v_k S: the price of `Shared`, yet every output has its own uncertainty."""

    def __init__(self, num_outputs: int, num_features: int, **factory: Any) -> None:
        super().__init__(num_outputs, num_features)
        self.common = Dense(1, num_features, **factory)
        self.log_scale = nn.Parameter(torch.zeros(num_outputs, **factory))

    @torch.no_grad()
    def set_isotropic(self, variance: float) -> None:
        """Initialise at S = variance · I and v_k = 1."""
        self.common.set_isotropic(variance)
        self.log_scale.zero_()

    def scale(self) -> Tensor:
        """v_k, (K,)."""
        return at_least_float32(self.log_scale).exp()

    def quadratic(self, features: Tensor) -> Tensor:
        """v_k φᵀSφ, (*batch, K)."""
        return self.common.quadratic(features) * self.scale()

    def quadratic_terms(self, features: Tensor) -> QuadraticTerms:
        """The terms of S, scaled."""
        quadratic, trace, logdet = self.common.quadratic_terms(features)
        scale = self.scale()
        log_scale = self.num_features * at_least_float32(self.log_scale).sum()
        logdet = torch.add(log_scale, logdet, alpha=self.num_outputs)
        return QuadraticTerms(quadratic * scale, trace * scale.sum(), logdet)

    def bilinear(self, left: Tensor, right: Tensor) -> Tensor:
        """v_k φᵀSφ′ of all pairs, (*batch, K, q, p)."""
        return self.common.bilinear(left, right) * self.scale()[:, None, None]

    def root_products(self, features: Tensor) -> Tensor:
        """v_k^½ Rφ with S = RᵀR, (*batch, K, N)."""
        return self.common.root_products(features) * self.scale().sqrt()[:, None]

    def dense(self) -> Tensor:
        """The matrices v_k S, (K, N, N)."""
        return self.common.dense() * self.scale()[:, None, None]

    def diagonal(self) -> Tensor:
        """Diagonals of v_k S, (K, N)."""
        return self.common.diagonal() * self.scale()[:, None]

    def trace(self) -> Tensor:
        """v_k tr S, (K,)."""
        return self.common.trace() * self.scale()

    def logdet(self) -> Tensor:
        """N log v_k + log|S|, (K,)."""
        return self.num_features * at_least_float32(self.log_scale) + self.common.logdet()

    def _cholesky(self) -> Tensor:
        return self.common._cholesky() * self.scale().sqrt()[:, None, None]

    @torch.no_grad()
    def project(self, precision: Tensor) -> None:
        """Alternate the optimal v_k = N / tr(Λ_kS) and S⁻¹ = mean v_kΛ_k until they agree."""
        scale = torch.ones_like(precision[:, 0, 0])
        for _ in range(1000):
            common = torch.linalg.inv((scale[:, None, None] * precision).mean(0))
            previous, scale = scale, self.num_features / (precision * common).sum((-2, -1))
            scale = scale / scale.log().mean().exp()  # only v_k S matters: fix the free factor
            if torch.allclose(scale, previous, rtol=1e-13, atol=0):
                break
        self.common.project((scale[:, None, None] * precision).mean(0, keepdim=True))
        self.log_scale.copy_(scale.log())

    @torch.no_grad()
    def project_examples(self, features: Tensor, weights: Tensor, ridge: Tensor) -> None:
        """The optimal S given v_k, then the optimal v_k given S, from one matrix."""
        scale = self.scale().double()
        scale = scale / scale.log().mean().exp()
        mixed = (weights.double() @ scale / self.num_outputs)[:, None]
        self.common.project_examples(features, mixed, scale.mean() * ridge)
        quadratic = self.common.quadratic(features).double().squeeze(-1)
        inner = self.common.diagonal().double().squeeze(0) @ ridge  # tr(S diag(ridge))
        scale = self.num_features / (inner + quadratic @ weights.double())
        self.log_scale.copy_(scale.log())
