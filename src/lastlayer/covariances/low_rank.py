"""Independent weights plus a few directions."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._checks import check_count
from ..functional import (
    GaussianPrecision,
    at_least_float32,
    exponential,
    gaussian_log_densities,
)
from ..functional.conjugate import weighted_gram
from ._base import Covariance, minimize

NUM_STEPS = 15  # of L-BFGS for a projection from examples
MOST_UNBOUND = 8  # rank up to which squares are added one by one


class LowRank(Covariance):
    """S_k = diag(s_k²) + U_kᵀU_k with r rows in U_k: correlations at r times the diagonal's cost.

    Choose the rank with `functools.partial(LowRank, rank=8)` as a head's `covariance`.
    """

    def __init__(
        self, num_outputs: int, num_features: int, rank: int | None = None, **factory: Any
    ) -> None:
        super().__init__(num_outputs, num_features)
        self.rank = min(3, num_features) if rank is None else rank
        check_count("rank", self.rank)
        if self.rank > num_features:
            raise ValueError(
                f"rank must be at most num_features={num_features}, got {rank}; "
                "a full-rank covariance is covariance='dense'"
            )
        self.log_variance = nn.Parameter(torch.zeros(num_outputs, num_features, **factory))
        self.factor = nn.Parameter(torch.zeros(num_outputs, self.rank, num_features, **factory))

    @torch.no_grad()
    def set_isotropic(self, variance: float) -> None:
        """Initialise near variance · I, a tenth of it in U, whose gradient at zero is zero."""
        self.log_variance.fill_(variance).log_()
        self.factor.normal_(0, (0.1 * variance / self.rank) ** 0.5)

    def quadratic(self, features: Tensor) -> Tensor:
        """Σ_n s_kn² φ_n² + ‖U_kφ‖², (*batch, K)."""
        quadratic = at_least_float32(features).square() @ self._variance().mT
        along = self._along(features)
        if self.rank > MOST_UNBOUND:
            return quadratic + along.square().sum(-1)
        for product in along.unbind(-1):  # sums over so few numbers are slow
            quadratic = torch.addcmul(quadratic, product, product)
        return quadratic

    def bilinear(self, left: Tensor, right: Tensor) -> Tensor:
        """Σ_n s_kn² φ_nφ′_n + (U_kφ)ᵀU_kφ′ of all pairs, (*batch, K, q, p)."""
        return self._bilinear_of_roots(left, right)

    def root_products(self, features: Tensor) -> Tensor:
        """s_kφ and U_kφ, (*batch, K, N + r)."""
        stddev = (0.5 * at_least_float32(self.log_variance)).exp()
        scaled = at_least_float32(features).unsqueeze(-2) * stddev
        return torch.cat([scaled, self._along(features)], -1)

    def _along(self, features: Tensor) -> Tensor:
        """U_kφ, (*batch, K, r)."""
        products = F.linear(features, self.factor.flatten(0, 1))
        return at_least_float32(products).unflatten(-1, (self.num_outputs, self.rank))

    def dense(self) -> Tensor:
        """The matrices S_k, (K, N, N)."""
        factor = at_least_float32(self.factor)
        return self._variance().diag_embed() + factor.mT @ factor

    def diagonal(self) -> Tensor:
        """Diagonals of S_k, (K, N)."""
        return self._variance() + at_least_float32(self.factor).square().sum(1)

    def logdet(self) -> Tensor:
        """log|S_k| by the matrix determinant lemma, (K,)."""
        log_variance = at_least_float32(self.log_variance)
        scaled = at_least_float32(self.factor) * (-0.5 * log_variance).exp()[:, None]
        capacitance = _log_diagonal(_capacitance(scaled)).to(scaled.dtype)
        return log_variance.sum(-1) + capacitance

    def sample(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws from N(0, S_k), (num_samples, K, N)."""
        stddev, factor = self._variance().sqrt(), at_least_float32(self.factor)
        noise = self._standard_normal(num_samples, stddev, generator).squeeze(-1)
        shape = (num_samples, self.num_outputs, 1, self.rank)
        along = torch.randn(shape, generator=generator, dtype=factor.dtype, device=factor.device)
        return stddev * noise + (along @ factor).squeeze(-2)

    def marginal_log_density(
        self, features: Tensor, mean: Tensor, noise_variance: Tensor
    ) -> Tensor:
        """log N(φ | μ_k, S_k + diag(σ²)) by the Woodbury identity, (*batch, K)."""
        variance = (self._variance() + noise_variance).double()
        scaled = self.factor.double() * variance.rsqrt().unsqueeze(1)
        root = _capacitance(scaled)
        # (diag(v) + UᵀU)⁻¹ = diag(1/v) − BᵀB with B = C^{-1/2} U diag(1/v), a difference of
        # nearly equal numbers along large U: double precision until the quadratic is done
        correction = torch.linalg.solve_triangular(root, scaled, upper=False)
        correction = correction * variance.rsqrt().unsqueeze(1)
        logdet = (-variance.log().sum(-1) - _log_diagonal(root)).to(features.dtype)
        precision = GaussianPrecision(variance.reciprocal(), correction, logdet)
        return gaussian_log_densities(features, mean, precision)

    @torch.no_grad()
    def project(self, precision: Tensor) -> None:
        """Alternate the diagonal with U, which has a closed form given the diagonal.

        With Λ̃ = diag(s)Λdiag(s), the best U lies along the softest directions of Λ̃, those of
        its r smallest eigenvalues below one. The diagonal is right where S⁻¹ and Λ agree on it,
        or where it vanishes, as it may in factor analysis: there the steps must grow.
        """
        independent = precision.diagonal(dim1=-2, dim2=-1).reciprocal()
        variance, floor = independent, 1e-8 * independent
        power, previous = torch.ones_like(variance), torch.zeros_like(variance)
        for _ in range(500):
            scale = variance.sqrt()
            relative = scale[:, :, None] * precision * scale[:, None, :]
            values, vectors = torch.linalg.eigh(relative)  # ascending
            soft, directions = values[:, : self.rank].clamp(max=1.0), vectors[:, :, : self.rank]
            excess = ((1 - soft)[:, None] * directions.square()).sum(-1)
            step = -(relative.diagonal(dim1=-2, dim2=-1) + excess).log()  # zero where they agree
            if bool(step.masked_fill((variance <= floor) & (step < 0), 0).abs().max() < 1e-10):
                break
            power = torch.where(step * previous > 0, 1.3 * power, 1.0)
            variance = torch.maximum(variance * (power * step).clamp(-2, 2).exp(), floor)
            previous = step
        length = (soft.reciprocal() - 1).sqrt()
        self.log_variance.copy_(2 * scale.log())
        self.factor.copy_((scale[:, :, None] * directions * length[:, None]).mT)

    def project_examples(self, features: Tensor, weights: Tensor, ridge: Tensor) -> None:
        """A few steps of L-BFGS, which need no matrix of N × N."""
        squares, sums = features.square(), weights.mT @ features.square()
        with torch.no_grad():  # in units in which independent weights have variance one
            unit = (sums + ridge.to(sums)).reciprocal()
            log_ratio = (self.log_variance - unit.log()).to(unit.dtype)
            relative = (self.factor / unit.sqrt().unsqueeze(1)).to(unit.dtype)

        def divergence(log_ratio: Tensor, relative: Tensor) -> Tensor:
            variance, factor = unit * log_ratio.exp(), relative * unit.sqrt().unsqueeze(1)
            along = (features @ factor.flatten(0, 1).mT).unflatten(-1, factor.shape[:2])
            explained = (weights * along.square().sum(-1)).sum() + (
                weights * (squares @ variance.mT)
            ).sum()
            spread = (ridge.to(unit) * (variance + factor.square().sum(1))).sum()
            root = _capacitance(relative * (-0.5 * log_ratio).exp().unsqueeze(1))
            return 0.5 * (explained + spread - log_ratio.sum() - _log_diagonal(root).sum())

        with torch.no_grad():
            independent = torch.zeros_like(log_ratio), torch.zeros_like(relative)
            if not bool(divergence(log_ratio, relative) <= divergence(*independent)):
                common = weighted_gram(features, weights.mean(-1)) + ridge.diag_embed()
                log_ratio, relative = independent[0], self._softest(common).to(relative)
        minimize(lambda: divergence(log_ratio, relative), [log_ratio, relative], max_iter=NUM_STEPS)
        with torch.no_grad():
            self.log_variance.copy_(log_ratio + unit.log())
            self.factor.copy_(relative * unit.sqrt().unsqueeze(1))

    def _softest(self, precision: Tensor) -> Tensor:
        """U for all outputs, relative to independent weights, from one precision, (K, r, N)."""
        scale = precision.diagonal().rsqrt()
        values, vectors = torch.linalg.eigh(scale[:, None] * precision * scale)  # ascending
        length = (values[: self.rank].clamp(1e-8, 0.99).reciprocal() - 1).sqrt()
        return (vectors[:, : self.rank] * length).mT.expand_as(self.factor).clone()

    def _variance(self) -> Tensor:
        return exponential(at_least_float32(self.log_variance))

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{super().extra_repr()}, rank={self.rank}"


def _capacitance(scaled: Tensor) -> Tensor:
    """Cholesky factors of C_k = I + V_kV_kᵀ, (K, r, r), in double precision.

    Large, nearly parallel rows make C ill-conditioned, and single precision would lose the I;
    C is tiny, so the extra digits cost nothing.
    """
    wide = scaled.double()
    eye = torch.eye(scaled.shape[-2], dtype=wide.dtype, device=wide.device)
    return torch.linalg.cholesky(eye + wide @ wide.mT)


def _log_diagonal(factor: Tensor) -> Tensor:
    """Log-determinants of the matrices with these Cholesky factors, (K,)."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
