"""Gaussians with diagonal or dense covariances, and their estimates. Tensors only."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..functional import (
    LOG_2PI,
    GaussianPrecision,
    gaussian_log_densities,
    inverse_wishart_exponent,
    prior_variance_evidence,
)
from ..functional.shared_gaussians import SharedGaussians
from ..priors import Prior


class Gaussians(NamedTuple):
    """K Gaussians."""

    mean: Tensor  # (K, N)
    spread: Tensor  # variances (K, N), or lower Cholesky factors of covariances (K, N, N)

    @classmethod
    def of(cls, mean: Tensor, covariance: Tensor) -> Gaussians:
        """Make Gaussians from variances (K, N) or covariances (K, N, N)."""
        return cls(mean, covariance if covariance.ndim == 2 else torch.linalg.cholesky(covariance))

    def log_densities(self, features: Tensor) -> Tensor:
        """log N(φ | μ_k, Σ_k), (*batch, K)."""
        mean, spread = self
        if spread.ndim == 2:
            precision = GaussianPrecision(spread.reciprocal(), None, -spread.log().sum(-1))
            return gaussian_log_densities(features, mean, precision, refine=True)
        flat = features.reshape(-1, features.shape[-1])
        quadratics = [  # class by class: never (batch, K, N)
            torch.linalg.solve_triangular(factor, (flat - center).mT, upper=False).square().sum(0)
            for center, factor in zip(mean, spread, strict=True)
        ]
        logdet = 2 * spread.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        densities = -0.5 * (torch.stack(quadratics, -1) + logdet + mean.shape[-1] * LOG_2PI)
        return densities.reshape(*features.shape[:-1], len(mean))


def as_gaussians(shared: SharedGaussians) -> Gaussians:
    """Classes with one covariance, each with a covariance of its own."""
    unwhitening = torch.linalg.inv(shared.whitening)  # (N, N), of rows
    covariance = unwhitening.mT @ unwhitening
    mean = shared.mean @ unwhitening + shared.center
    return Gaussians.of(mean, shared.scale[:, None, None] * covariance)


def outer(vectors: Tensor, weight: Tensor, dense: bool) -> Tensor:
    """w_k x_kx_kᵀ, (K, N, N), or its diagonal, (K, N), of vectors (K, N) and weights (K,)."""
    weighted = weight[:, None] * vectors
    return weighted.unsqueeze(-1) * vectors.unsqueeze(-2) if dense else weighted * vectors


def map_mean(mean: Tensor, counts: Tensor, noise: Tensor, prior_variance: float) -> Tensor:
    r"""MAP means under the prior N(0, sI) and known noise (paper, appendix B, corrected).

    $$\hat\mu_y = (I/s + T_y\Sigma^{-1})^{-1}\Sigma^{-1}\textstyle\sum_t\phi_t
      = T_y\,(T_yI + \Sigma/s)^{-1}\bar\phi_y$$

    Args:
        mean: φ̄_y, (K, N).
        counts: T_y, (K,).
        noise: Σ, (N, N), or its diagonal, (N,).
        prior_variance: s.

    Returns:
        The means, (K, N); zero for a class without examples.
    """
    if noise.ndim == 1:
        return mean * (counts[:, None] / (counts[:, None] + noise / prior_variance))
    variances, basis = torch.linalg.eigh(noise)
    shrinkage = counts[:, None] / (counts[:, None] + variances / prior_variance)
    return (mean @ basis * shrinkage) @ basis.mT


def likeliest_variance(mean: Tensor, counts: Tensor, noise: Tensor) -> float:
    """The prior variance s of class means (K, N) by the evidence, see `map_mean`."""
    if noise.ndim == 1:
        return float(prior_variance_evidence(mean, counts, noise))
    variances, basis = torch.linalg.eigh(noise)
    return float(prior_variance_evidence(mean @ basis, counts, variances))


class ClassGaussians(NamedTuple):
    """Gaussians of each class with a covariance of its own, and of a class yet unknown."""

    log_class: Tensor  # log p(y), (K,)
    classes: Gaussians
    prior: Gaussians  # one

    @classmethod
    def of(cls, counts: Tensor, mean: Tensor, scatter: Tensor, prior: Prior) -> ClassGaussians:
        """MAP estimates (paper, appendix B).

        Args:
            counts: T_y, (K,).
            mean: φ̄_y, (K, N).
            scatter: of each class about its mean, (K, N, N), or its diagonals, (K, N).
            prior: of class means and noise.
        """
        total, dense = counts.sum(0, keepdim=True), scatter.ndim == 3
        ones = mean.new_ones(mean.shape[-1])
        identity = ones.diag() if dense else ones
        exponent = inverse_wishart_exponent(prior.noise_dof, mean.shape[-1])

        def covariance(scatter: Tensor, counts: Tensor) -> Tensor:
            denominator = (counts + exponent).reshape(-1, *[1] * (scatter.ndim - 1))
            return (prior.noise_scale * identity + scatter) / denominator

        pooled = covariance(scatter.sum(0, keepdim=True), total)  # Σ, (1, …)
        variance = (
            likeliest_variance(mean, counts, pooled[0])
            if prior.variance == "evidence"
            else prior.fixed_variance
        )
        estimate = map_mean(mean, counts, pooled[0], variance)
        scatter = scatter + outer(mean - estimate, counts, dense)
        return cls(
            (counts / total).log(),
            Gaussians.of(estimate, covariance(scatter, counts)),
            Gaussians.of(torch.zeros_like(mean[:1]), pooled + variance * identity),
        )

    def log_density(self, points: Tensor) -> Tensor:
        """log Σ_y p(φ | y) p(y), (*batch,)."""
        return (self.classes.log_densities(points) + self.log_class).logsumexp(-1)

    def log_prior(self, points: Tensor) -> Tensor:
        """log N(φ | 0, sI + Σ), (*batch,)."""
        return self.prior.log_densities(points).squeeze(-1)

    def gaussians(self) -> Gaussians:
        """The classes."""
        return self.classes
