"""Gaussian classes with one covariance, all of whose hyperparameters come from the data."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .evidence import covariance_evidence, mean_evidence
from .numerics import LOG_2PI

EPSILON = 1e-30  # length below which features stay as they are: zero has no direction


def signed_power(features: Tensor, power: float | Tensor) -> Tensor:
    """sign(φ)|φ|^p, element by element, (*batch, N)."""
    return features.sign() * features.abs().pow(power)


def on_sphere(features: Tensor, power: float | Tensor = 1.0) -> Tensor:
    """Features to a signed power, and then of length one, (*batch, N)."""
    points = features if isinstance(power, float) and power == 1 else signed_power(features, power)
    return F.normalize(points, dim=-1, eps=EPSILON)


class SharedGaussians(NamedTuple):
    """Posterior predictive densities of classes with a common covariance Σ."""

    log_class: Tensor  # log p(y), (K,)
    center: Tensor  # m, (N,)
    whitening: Tensor  # W with WWᵀ = Σ⁻¹, (N, N)
    log_volume: Tensor  # ½ log|Σ⁻¹| − N/2 log 2π, ()
    mean: Tensor  # of the classes, Wᵀ(μ̂_y − m), (K, N)
    scale: Tensor  # of their predictive covariances in units of Σ, (K,)
    mean_variance: Tensor | None  # κ; None for a single class

    @classmethod
    def of(cls, counts: Tensor, mean: Tensor, scatter: Tensor) -> SharedGaussians:
        """The densities from counts (K,), means (K, N) and the scatter within classes (N, N)."""
        seen, size = counts > 0, mean.shape[-1]
        total = counts.sum()
        center = counts @ mean / total
        eigenvalues, basis = torch.linalg.eigh(scatter)
        eigenvalues = eigenvalues.clamp(min=0)
        degrees = total - seen.sum()
        if bool(degrees > 0) and bool(eigenvalues[-1] > 0):
            prior_count, prior_variance = covariance_evidence(eigenvalues, degrees)
            variance = (prior_count * prior_variance + eigenvalues) / (prior_count + degrees)
        else:  # nothing is known of the spread: as wide as the features are long
            square = (counts @ mean.square()).sum() / (total * size)
            variance = square.where(square > 0, 1.0).expand(size)
        whitening = basis * variance.rsqrt()
        whitened = (mean - center) @ whitening
        mean_variance = None
        share, scale = torch.ones_like(counts), 1 + 1 / counts
        if int(seen.sum()) > 1:
            squares = whitened.square().sum(-1)
            mean_variance = mean_evidence(squares[seen], counts[seen], size)
            share = counts / (counts + 1 / mean_variance)
            scale = 1 + 1 / (counts + 1 / mean_variance)
        return cls(
            (counts / total).log(),
            center,
            whitening,
            -0.5 * (variance.log().sum() + size * LOG_2PI),
            share[:, None] * whitened,
            scale.where(seen, 1.0),
            mean_variance,
        )

    def log_density(self, points: Tensor) -> Tensor:
        """log Σ_y p(φ | y) p(y), (*batch,)."""
        white = (points - self.center) @ self.whitening
        square = white.square().sum(-1, keepdim=True)
        distances = square - 2 * white @ self.mean.mT + self.mean.square().sum(-1)  # (*batch, K)
        quadratic = distances / self.scale + points.shape[-1] * self.scale.log()
        return (self.log_class - 0.5 * quadratic).logsumexp(-1) + self.log_volume

    def log_prior(self, points: Tensor) -> Tensor:
        """log N(φ | m, (1 + κ')Σ), κ' the likeliest for φ from κ up, (*batch,); 0 for one class."""
        if self.mean_variance is None:
            return torch.zeros_like(points[..., 0])
        size = points.shape[-1]
        square = ((points - self.center) @ self.whitening).square().sum(-1)
        scale = (square / size).maximum(1 + self.mean_variance)
        return self.log_volume - 0.5 * (square / scale + size * scale.log())
