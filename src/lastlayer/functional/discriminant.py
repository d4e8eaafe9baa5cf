"""Gaussian classes with one shrunk covariance: distances, and how sharply they predict labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_RANGE = (-18.0, 7.0)  # of the inverse temperature
MAX_STEPS = 64
PRECISION = 1e-8  # of its logarithm


class LabelledClasses(NamedTuple):
    """Examples and classes in a basis in which the covariance within classes is diagonal."""

    features: Tensor  # φ, (T, N)
    target: Tensor  # class indices, (T,)
    weight: Tensor  # (T,)
    mean: Tensor  # φ̄_k, (K, N)
    counts: Tensor  # Σ_t w of each class, of all data, (K,)
    variance: Tensor  # of features within classes, (N,)


class Sharpness(NamedTuple):
    """The inverse temperature under which labels are likeliest."""

    inverse_temperature: float
    loss: float  # negative log-likelihood of the labels, and the penalty


def shrunk(variance: Tensor, shrinkage: float) -> Tensor:
    r"""Variances $(1-\rho)\lambda_n + \rho\bar\lambda$, or eigenvalues of a covariance, (N,)."""
    return torch.lerp(variance, variance.mean(), shrinkage)


def squared_distances(features: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Mahalanobis distances Σ_n (φ_n − μ_kn)²/λ_n, (T, K), of features (T, N) and means (K, N)."""
    precision = variance.reciprocal()
    squares = torch.addmm(
        (mean.square() @ precision).expand(len(features), -1),
        features,
        (mean * precision).mT,
        alpha=-2,
    )
    return squares + (features.square() @ precision).unsqueeze(-1)


def left_out_distances(data: LabelledClasses, shrinkage: float, *, correlated: bool) -> Tensor:
    r"""Distances of every example to classes that were estimated without it, (T, K).

    Without an example of weight w, the mean of its class of weight T_y moves away from it, and
    the scatter within classes loses $\frac{wT_y}{T_y-w}ee^\top$ with $e = \phi-\bar\phi_y$.
    With $a = (1-\rho)\frac{wT_y}{(T_y-w)T}$ and distances $q_k$ under Σ, whose inverse is updated
    by the Sherman–Morrison formula,

    $$q_k^- = q_k + \frac{a\,(e^\top\Sigma^{-1}(\phi-\bar\phi_k))^2}{1 - a\,q_y},\quad
      q_y^- = \Big(\frac{T_y}{T_y-w}\Big)^2 \frac{q_y}{1 - a\,q_y}.$$

    T and the mean variance, towards which is shrunk, are kept.

    Args:
        data: examples, and classes estimated from them.
        shrinkage: ρ, between 0 and 1.
        correlated: whether the covariance has off-diagonal elements, which are zero in this basis
            but not without an example; otherwise each variance is updated by itself.

    Returns:
        Distances; those of the only example of a class are to classes with it.
    """
    variance = shrunk(data.variance, shrinkage)
    rows, target = torch.arange(len(data.target), device=data.target.device), data.target
    own, total = data.counts[target], data.counts.sum()
    others = _has_others(target, data.weight, data.counts)
    share = own / torch.where(others, own - data.weight, own)  # T_y / (T_y − w)
    removed = (1 - shrinkage) * data.weight * share / total
    if correlated:
        distances = squared_distances(data.features, data.mean, variance)
        between = squared_distances(data.mean, data.mean, variance)
        nearest = distances[rows, target]
        product = 0.5 * (distances + nearest.unsqueeze(-1) - between[target])  # eᵀΣ⁻¹(φ − φ̄_k)
        left = (1 - removed * nearest).unsqueeze(-1)
        distances = distances + removed.unsqueeze(-1) * product.square() / left
    else:
        error = data.features - data.mean[target]
        precision = (variance - removed.unsqueeze(-1) * error.square()).reciprocal()
        scaled = precision * data.features
        distances = torch.addmm(
            (scaled * data.features).sum(-1, keepdim=True), scaled, data.mean.mT, alpha=-2
        )
        distances = distances + precision @ data.mean.square().mT
    distances[rows, target] *= share.square()
    return distances


def left_out_log_prior(
    target: Tensor, weight: Tensor, counts: Tensor, concentration: float
) -> tuple[Tensor, Tensor]:
    """Log class probabilities without each example, (T, K), and the weights of examples, (T,).

    Classes without examples have none; the only example of a class has no weight: without it
    nothing would be known of its class.
    """
    left = counts + concentration - F.one_hot(target, len(counts)) * weight.unsqueeze(-1)
    log_prior = left.log().masked_fill(counts == 0, -torch.inf)
    return log_prior, weight.where(_has_others(target, weight, counts), 0.0)


def _has_others(target: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    """Whether there are other examples of the class of an example, (T,)."""
    own = counts[target]
    return own - weight > 1e-9 * own


def best_sharpness(
    distances: Tensor,
    log_prior: Tensor,
    target: Tensor,
    weight: Tensor,
    penalty: float = 0.0,
    initial: float = 1.0,
) -> Sharpness:
    r"""The inverse temperature β at which the labels are likeliest.

    $$-\sum_t w_t\log\mathrm{softmax}_{y_t}(\log\pi_k - \tfrac12\beta q_{tk})
      + \tfrac12 c\,\beta^2$$

    is convex in β; its minimum is found by Newton's method within a bracket. Without a penalty it
    is the largest β that is considered if all labels are nearest to their own class.

    Args:
        distances: q, (T, K).
        log_prior: log π, (T, K) or (K,); −∞ for classes that are none.
        target: class indices, (T,).
        weight: (T,).
        penalty: c.
        initial: where to begin.
    """
    gains = -0.5 * (distances - distances.gather(-1, target.unsqueeze(-1)))
    point, (low, high) = math.log(initial), LOG_RANGE
    for _ in range(MAX_STEPS):
        inverse = math.exp(point)
        probs = (log_prior + inverse * gains).softmax(-1).mul_(gains)
        mean = probs.sum(-1)
        slope = float(weight @ mean) + penalty * inverse
        curvature = float(weight @ ((probs * gains).sum(-1) - mean.square())) + penalty
        low, high = (low, point) if slope > 0 else (point, high)
        newton = inverse - slope / curvature if curvature > 0 else 0.0
        step = math.log(newton) if newton > 0 else -math.inf
        before, point = point, step if low < step < high else (low + high) / 2
        if abs(point - before) < PRECISION or high - low < PRECISION:
            break
    inverse = math.exp(point)
    losses = F.cross_entropy(log_prior + inverse * gains, target, reduction="none")
    loss = float(weight @ losses.where(weight != 0, 0.0)) + 0.5 * penalty * inverse**2
    return Sharpness(inverse, loss)
