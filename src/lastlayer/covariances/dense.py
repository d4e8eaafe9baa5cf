"""One unrestricted covariance per output."""

from typing import Any

import torch
from torch import Tensor

from ..functional import at_least_float32
from ..functional.conjugate import weighted_gram
from ._base import Covariance, QuadraticTerms
from ._triangular import Triangular


class Dense(Covariance):
    """S_k = R_kᵀR_k with R_k upper-triangular: quadratic in the width, linear in the outputs."""

    full = True

    def __init__(self, num_outputs: int, num_features: int, **factory: Any) -> None:
        super().__init__(num_outputs, num_features)
        self.factor = Triangular(num_outputs, num_features, **factory)

    def set_isotropic(self, variance: float) -> None:
        """Initialise at S_k = variance · I."""
        self.factor.set_isotropic(variance**0.5)

    def quadratic(self, features: Tensor) -> Tensor:
        """‖R_kφ‖², (*batch, K)."""
        return self.factor.squares(features)[0]

    def quadratic_terms(self, features: Tensor) -> QuadraticTerms:
        """Quadratic and trace from the same blocks of R_k."""
        quadratic, trace = self.factor.squares(features)
        return QuadraticTerms(quadratic, trace, self.logdet().sum())

    def observed_terms(self, features: Tensor, output: Tensor) -> QuadraticTerms:
        """Each example's φᵀS_kφ at the cost of one output; all of them in a compiled graph."""
        if torch.compiler.is_compiling():  # sizes of groups are not known there
            return super().observed_terms(features, output)
        quadratic, trace = self.factor.squares_of(features, output)
        return QuadraticTerms(quadratic, trace, self.logdet().sum())

    def bilinear(self, left: Tensor, right: Tensor) -> Tensor:
        """(R_kφ)ᵀR_kφ′ of all pairs, (*batch, K, q, p)."""
        return self._bilinear_of_roots(left, right)

    def root_products(self, features: Tensor) -> Tensor:
        """R_kφ, (*batch, K, N)."""
        return at_least_float32(self.factor.products(features))

    def dense(self) -> Tensor:
        """The matrices S_k, (K, N, N)."""
        upper = at_least_float32(self.factor.dense())
        return upper.mT @ upper

    def diagonal(self) -> Tensor:
        """Diagonals of S_k, (K, N)."""
        return at_least_float32(self.factor.dense()).square().sum(-2)

    def trace(self) -> Tensor:
        """‖R_k‖², (K,)."""
        return self.factor.squared_norm()

    def logdet(self) -> Tensor:
        """log|S_k|, (K,)."""
        return 2 * at_least_float32(self.factor.log_diagonal).sum(-1)

    def _cholesky(self) -> Tensor:
        return at_least_float32(self.factor.dense()).mT

    @torch.no_grad()
    def project(self, precision: Tensor) -> None:
        """Become the inverses of the precisions."""
        self.factor.assign(_inverse_root(precision))

    @torch.no_grad()
    def project_examples(self, features: Tensor, weights: Tensor, ridge: Tensor) -> None:
        """Become the inverses of the precisions, one output at a time."""
        dtype = self.factor.log_diagonal.dtype
        roots = [
            _inverse_root(weighted_gram(features, column) + ridge.diag_embed()).to(dtype)
            for column in weights.mT
        ]
        self.factor.assign(torch.stack(roots))


def _inverse_root(precision: Tensor) -> Tensor:
    """R, upper-triangular, with Λ⁻¹ = RᵀR: the inverse of U with Λ = UUᵀ, (*, N, N)."""
    # Cholesky from the last row to the first
    upper = torch.linalg.cholesky(precision.flip(-1, -2)).flip(-1, -2)
    eye = torch.eye(upper.shape[-1], dtype=upper.dtype, device=upper.device)
    return torch.linalg.solve_triangular(upper, eye, upper=True)
