"""Closed forms of the conjugate models: statistics, posteriors, noise. Tensors only."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .gaussian import inverse_wishart_exponent

GRAM_CHUNK = 2**21  # features converted to double precision at a time
SYMMETRIC_BLOCK = 192  # columns


class RegressionStatistics(NamedTuple):
    """Sufficient statistics of an exact regression, of the residuals e = y − W₀φ."""

    gram: Tensor  # G = Σ_t w φφᵀ, (K, N, N), or (1, N, N) if the same for all outputs
    cross: Tensor  # Σ_t w eφᵀ, (K, N)
    outer: Tensor  # Σ_t w eeᵀ, (K, K)
    counts: Tensor  # Σ_t w, (K,)
    reference: Tensor  # W₀, (K, N)

    def merge(self, other: RegressionStatistics) -> RegressionStatistics:
        """Statistics of both data sets together, which have the same reference."""
        return RegressionStatistics(
            self.gram + other.gram,
            self.cross + other.cross,
            self.outer + other.outer,
            self.counts + other.counts,
            self.reference,
        )

    def cross_about(self, mean: Tensor) -> Tensor:
        """C = Σ_t w (y − Mφ)φᵀ, (K, N), for a mean M, (K, N)."""
        return self.cross + _times(self.reference - mean, self.gram)


class ClassStatistics(NamedTuple):
    """Sufficient statistics of exact class densities."""

    counts: Tensor  # Σ_t w of each class, (K,)
    total: Tensor  # Σ_t wφ of each class, (K, N)
    within: Tensor  # Σ_t w(φ − φ̄_y)(φ − φ̄_y)ᵀ over all classes, (N, N)

    def merge(self, other: ClassStatistics) -> ClassStatistics:
        """Statistics of both data sets together, without cancellation."""
        counts, total = self.counts + other.counts, self.total + other.total
        share = self.counts * other.counts / counts.clamp(min=torch.finfo(counts.dtype).tiny)
        apart = _class_means(self.total, self.counts) - _class_means(other.total, other.counts)
        between = apart.mT @ (share[:, None] * apart)
        return ClassStatistics(counts, total, self.within + other.within + between)


def eye_like(matrix: Tensor) -> Tensor:
    """The identity of a matrix's size, dtype and device."""
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def regression_statistics(
    features: Tensor, target: Tensor, weight: Tensor, reference: Tensor
) -> RegressionStatistics:
    """Sufficient statistics of features (T, N), targets (T, K) and weights (T, 1) or (T, K).

    With a reference W₀ (K, N) close to the weights to be fitted, the residuals do not cancel,
    however large the targets are.
    """
    gram = torch.stack([_gram_of_weighted(features, column) for column in weight.mT])
    residual = target - features @ reference.mT
    weighted = weight * residual
    counts = weight.sum(0).expand(target.shape[-1])
    products = (weighted.mT @ features, weighted.mT @ residual)
    return RegressionStatistics(gram, *products, counts, reference)


def _gram_of_weighted(features: Tensor, weight: Tensor) -> Tensor:
    """Σ_t w_t φφᵀ, (N, N), at the cost of the examples that count."""
    counted = weight.nonzero().squeeze(-1)
    if len(counted) < len(weight):
        features, weight = features[counted], weight[counted]
    return features.mT @ (features * weight[:, None])


def weighted_gram(features: Tensor, weights: Tensor) -> Tensor:
    """Σ_t w_t φφᵀ, (N, N), in double precision, a chunk at a time; weights (T,)."""
    rows = max(1, GRAM_CHUNK // features.shape[-1])
    total = None
    for part, weight in zip(features.split(rows), weights.split(rows), strict=True):
        wide = part.double()
        gram = _symmetric_product(wide, wide * weight.double()[:, None])
        total = gram if total is None else total.add_(gram)
    assert total is not None
    return total


def _symmetric_product(first: Tensor, second: Tensor) -> Tensor:
    """AᵀB, (N, N), which is known to be symmetric: in blocks, of which half need no product."""
    size = first.shape[-1]
    product = first.new_empty(size, size)
    for start in range(0, size, SYMMETRIC_BLOCK):
        stop = min(start + SYMMETRIC_BLOCK, size)
        lower = first[:, start:].mT @ second[:, start:stop]
        product[start:, start:stop] = lower
        product[start:stop, stop:] = lower[stop - start :].mT
    return product


def posterior_precision(gram: Tensor, coefficients: Tensor, prior_variance: Tensor) -> Tensor:
    """S_k⁻¹ = I/s + c_kG, (K, N, N), for coefficients c (K,) and s of each feature, (N,)."""
    return eye_like(gram) / prior_variance + coefficients[:, None, None] * gram


def posterior_mean(precision: Tensor, coefficients: Tensor, cross: Tensor) -> Tensor:
    """W̄ with rows S_k c_kC_k, (K, N): outputs that do not see each other."""
    right = (coefficients[:, None] * cross).unsqueeze(-1)
    return torch.cholesky_solve(right, torch.linalg.cholesky(precision)).squeeze(-1)


def correlated_posterior_mean(
    gram: Tensor, cross: Tensor, noise_precision: Tensor, prior_variance: Tensor
) -> Tensor:
    """W̄ with Σ⁻¹(C − W̄G) = W̄/s, (K, N), output by output in the eigenbasis of Σ⁻¹."""
    values, vectors = torch.linalg.eigh(noise_precision)
    precision = posterior_precision(gram[:1], values, prior_variance)
    return vectors @ posterior_mean(precision, values, vectors.mT @ cross)


def cross_of_posterior(
    mean: Tensor, gram: Tensor, row_covariance: Tensor | None, prior_variance: Tensor
) -> Tensor:
    """The C that leads to W̄ given G: ΣW̄/s + W̄G, with I for Σ if that is None, (K, N)."""
    shrunk = mean if row_covariance is None else row_covariance @ mean
    return shrunk / prior_variance + _times(mean, gram)


def residual_scatter(data: RegressionStatistics, mean: Tensor) -> Tensor:
    """Σ_t w(y − W̄φ)(y − W̄φ)ᵀ, (K, K); with weights per output only its diagonal means much."""
    change = mean - data.reference
    explained = change @ data.cross.mT
    return data.outer - explained - explained.mT + change @ _times(change, data.gram).mT


def _times(mean: Tensor, gram: Tensor) -> Tensor:
    """W̄G, (K, N), with each output's own G."""
    return (gram @ mean.unsqueeze(-1)).squeeze(-1)


def class_statistics(
    features: Tensor, target: Tensor, weight: Tensor, num_classes: int
) -> ClassStatistics:
    """Sufficient statistics of features (T, N), class indices (T,) and weights (T,)."""
    zeros = features.new_zeros(num_classes, features.shape[-1])
    total = zeros.index_add(0, target, weight[:, None] * features)
    counts = zeros[:, 0].index_add(0, target, weight)
    centered = features - _class_means(total, counts)[target]
    return ClassStatistics(counts, total, centered.mT @ (weight[:, None] * centered))


def class_scatter(data: ClassStatistics, mean: Tensor) -> Tensor:
    """Σ_t w(φ − μ_y)(φ − μ_y)ᵀ about given means (K, N), (N, N)."""
    off = data.counts[:, None].sqrt() * (_class_means(data.total, data.counts) - mean)
    return data.within + off.mT @ off


def _class_means(total: Tensor, counts: Tensor) -> Tensor:
    """φ̄_k, (K, N); zero for a class without examples."""
    return total / counts.clamp(min=torch.finfo(counts.dtype).tiny)[:, None]


def inverse_wishart_mode(scatter: Tensor, counts: Tensor, dof: float, scale: float) -> Tensor:
    """(M + scatter) / (T + ν + N + 1) with M = mI, (N, N), for T () or per row (N,)."""
    exponent = counts + inverse_wishart_exponent(dof, scatter.shape[-1])
    if bool((exponent <= 0).any()):
        raise ValueError(
            f"prior.noise_dof={dof} leaves no weight for the noise estimate; with this data it "
            f"must exceed {dof - float(exponent.min())}"
        )
    return (scatter + scale * eye_like(scatter)) / exponent.unsqueeze(-1)
