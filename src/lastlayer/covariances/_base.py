"""The base class of covariances: the products that heads need."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional import LOG_2PI, at_least_float32, full_precision, of_output
from ..functional.conjugate import weighted_gram

MOST_NUMBERS = 1 << 24  # of the pairs of features from which S_k is recovered, at once


class QuadraticTerms(NamedTuple):
    """Terms of a covariance in a discriminative or regression objective."""

    quadratic: Tensor  # φᵀS_kφ, (*batch, K), or (*batch,) of one output each
    trace: Tensor  # Σ_k tr S_k, ()
    logdet: Tensor  # Σ_k log|S_k|, ()


class MarginalTerms(NamedTuple):
    """Terms of a covariance in a generative objective."""

    log_density: Tensor  # log N(φ | μ_k, S_k + diag σ²), (*batch, K)
    scaled_trace: Tensor  # tr(S_k diag σ⁻²), (K,)
    trace: Tensor  # Σ_k tr S_k, ()
    logdet: Tensor  # Σ_k log|S_k|, ()


class Covariance(nn.Module, ABC):
    """Posterior covariances S_k (N, N) of K outputs, as a handful of products.

    A subclass must define `quadratic`; everything else follows from it, exactly but slowly, and
    is overridden where the structure allows better. `tests/helpers/conformance.py` checks a
    subclass, yours too: it recovers S_k from `quadratic` and compares every other product with it.

    Attributes:
        shared: whether all outputs have the same S.
        full: whether S_k may be any covariance (any one, if shared), so that the exact
            regression posterior is always inside the family.
        axis_aligned: whether S_k is always diagonal.
    """

    shared: bool = False
    full: bool = False
    axis_aligned: bool = False

    def __init__(self, num_outputs: int, num_features: int) -> None:
        super().__init__()
        self.num_outputs, self.num_features = num_outputs, num_features

    def set_isotropic(self, variance: float) -> None:
        """Initialise at S_k = variance · I, or close to it; the default keeps the initial value."""

    @abstractmethod
    def quadratic(self, features: Tensor) -> Tensor:
        """φᵀS_kφ, (*batch, K), for features (*batch, N)."""

    def bilinear(self, left: Tensor, right: Tensor) -> Tensor:
        """φᵀS_kφ′ of all pairs, (*batch, K, q, p), for features (*batch, q, N) and (*batch, p, N).

        One matrix of pairs per output, as `dense` has one of weights: `bilinear(I, I)` is `dense`.
        The leading dimensions of both are broadcast.
        """
        matrices = at_least_float32(self.dense())
        with full_precision(left):
            products = at_least_float32(left).unsqueeze(-3) @ matrices  # (*batch, K, q, N)
            return products @ at_least_float32(right).unsqueeze(-3).mT

    def root_products(self, features: Tensor) -> Tensor:
        """R_kφ with S_k = R_kᵀR_k, (*batch, K, M), for features (*batch, N); M is mostly N.

        Their scalar products are `quadratic` and `bilinear`; times standard normal numbers z,
        (R_kφ)ᵀz is a draw of the function φ ↦ w_kᵀφ − w̄_kᵀφ.
        """
        upper = self._cholesky().mT
        with full_precision(features):
            products = F.linear(at_least_float32(features), upper.flatten(0, 1))
        return products.unflatten(-1, upper.shape[:2])

    def dense(self) -> Tensor:
        """The matrices S_k, (K, N, N)."""
        eye = self._eye()
        rows = max(1, MOST_NUMBERS // self.num_features**2)
        parts = [self.quadratic(eye + part.unsqueeze(1)) for part in eye.split(rows)]
        pairs = torch.cat(parts)  # (N, N, K)
        diagonal = self.diagonal()  # polarisation: 2 xᵀSy = q(x + y) − q(x) − q(y)
        both = diagonal.unsqueeze(-1) + diagonal.unsqueeze(-2)
        return 0.5 * (pairs.movedim(-1, 0) - both)

    def diagonal(self) -> Tensor:
        """Diagonals of S_k, (K, N)."""
        return self.quadratic(self._eye()).mT

    def trace(self) -> Tensor:
        """tr S_k, (K,)."""
        return self.diagonal().sum(-1)

    def logdet(self) -> Tensor:
        """log|S_k|, (K,)."""
        return 2 * self._cholesky().diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def sample(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws from N(0, S_k), (num_samples, K, N)."""
        factor = self._cholesky()
        return (factor @ self._standard_normal(num_samples, factor, generator)).squeeze(-1)

    def marginal_log_density(
        self, features: Tensor, mean: Tensor, noise_variance: Tensor
    ) -> Tensor:
        """log N(φ | μ_k, S_k + diag(σ²)), (*batch, K), for mean (K, N) and σ² (N,).

        All three are of one dtype: double for predictions, whatever that of the parameters is.
        """
        factor = torch.linalg.cholesky(at_least_float32(self.dense()) + noise_variance.diag_embed())
        flat = features.reshape(-1, self.num_features)
        error = (flat - mean.unsqueeze(1)).mT  # (K, N, batch)
        white = torch.linalg.solve_triangular(factor, error, upper=False)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        constant = logdet + self.num_features * LOG_2PI  # (K,)
        densities = -0.5 * (white.square().sum(-2).mT + constant)
        return densities.reshape(*features.shape[:-1], self.num_outputs)

    def quadratic_terms(self, features: Tensor) -> QuadraticTerms:
        """`quadratic`, `trace` and `logdet` at once, where they can share work."""
        return QuadraticTerms(self.quadratic(features), self.trace().sum(), self.logdet().sum())

    def observed_terms(self, features: Tensor, output: Tensor) -> QuadraticTerms:
        """`quadratic_terms` where one output k of each example is observed.

        Args:
            features: (*batch, N).
            output: k, (*batch,).

        Returns:
            The terms, with φᵀS_kφ of the observed output alone, (*batch,).
        """
        quadratic, trace, logdet = self.quadratic_terms(features)
        return QuadraticTerms(of_output(quadratic, output), trace, logdet)

    def marginal_terms(
        self, features: Tensor, mean: Tensor, noise_variance: Tensor
    ) -> MarginalTerms:
        """`marginal_log_density`, traces and `logdet` at once, where they can share work."""
        density = self.marginal_log_density(features, mean, noise_variance)
        scaled = self.diagonal().to(noise_variance.dtype) @ noise_variance.reciprocal()
        return MarginalTerms(density, scaled, self.trace().sum(), self.logdet().sum())

    def precision(self) -> Tensor:
        """The inverses S_k⁻¹, (K, N, N)."""
        return torch.cholesky_inverse(self._cholesky())

    def project(self, precision: Tensor) -> None:
        r"""Become the member of the family nearest to given precisions Λ_k, (K, N, N).

        Nearest means the smallest KL(N(0, S_k) ‖ N(0, Λ_k⁻¹)), which is the optimum of the
        variational objective. Without a closed form it is found by L-BFGS.
        """

        def divergence() -> Tensor:
            return 0.5 * ((self.dense() * precision).sum() - self.logdet().sum())

        variables: list[Tensor] = list(self.parameters())
        if not variables:
            raise TypeError(
                f"{type(self).__name__} has no parameters to project with; give it some, or "
                "override project(precision)"
            )
        minimize(divergence, variables)

    def project_diagonal(self, precision: Tensor) -> None:
        """`project` for diagonal precisions, given as (K, N)."""
        self.project(precision.diag_embed())

    def project_examples(self, features: Tensor, weights: Tensor, ridge: Tensor) -> None:
        """Move to, or towards, `project` of Λ_k = diag(ridge) + Σ_t c_tkφ_tφ_tᵀ.

        A family that needs no matrices per output to do so overrides this. Where it takes several
        steps, one call may take one of them, as long as the divergence falls.

        Args:
            features: φ_t, (T, N).
            weights: c_tk, (T, K), not negative.
            ridge: (N,).
        """
        grams = torch.stack([weighted_gram(features, column) for column in weights.mT])
        self.project((grams + ridge.diag_embed()).to(features.dtype))

    def _bilinear_of_roots(self, left: Tensor, right: Tensor) -> Tensor:
        """`bilinear` as scalar products of `root_products`, for those who have them cheaply."""
        roots = self.root_products(left).movedim(-2, -3)  # (*batch, K, q, M)
        others = roots if right is left else self.root_products(right).movedim(-2, -3)
        with full_precision(roots):
            return roots @ others.mT

    def _cholesky(self) -> Tensor:
        return torch.linalg.cholesky(at_least_float32(self.dense()))

    def _standard_normal(
        self, num_samples: int, like: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        shape = (num_samples, self.num_outputs, self.num_features, 1)
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)

    def _eye(self) -> Tensor:
        like = next(itertools.chain(self.parameters(), self.buffers()))
        return torch.eye(self.num_features, dtype=like.dtype, device=like.device)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"num_outputs={self.num_outputs}, num_features={self.num_features}"


def minimize(objective: Callable[[], Tensor], variables: list[Tensor], max_iter: int = 300) -> None:
    """Minimise a smooth function of leaf tensors in place, by L-BFGS."""
    wanted = [variable.requires_grad for variable in variables]
    for variable in variables:
        variable.requires_grad_(True)
    optimizer = torch.optim.LBFGS(
        variables,
        max_iter=max_iter,
        tolerance_grad=1e-9,
        tolerance_change=1e-13,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        loss = objective()
        gradients = torch.autograd.grad(loss, variables)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.grad = gradient
        return loss

    with torch.enable_grad():
        optimizer.step(closure)
    for variable, before in zip(variables, wanted, strict=True):
        variable.grad = None
        variable.requires_grad_(before)
