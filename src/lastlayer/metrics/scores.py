"""Scores of single predictions, smaller is better; pure functions of tensors."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import check_count, check_labels, check_target
from ..predictive import (
    GaussianMixturePredictive,
    GaussianPredictive,
    MultivariateGaussianPredictive,
)


def crps(
    predictive: Any,
    target: Tensor,
    num_samples: int = 1000,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Continuous ranked probability score of each target, in its units.

    $$\mathrm{CRPS}(F, y) = \int (F(x) - 1\{y \le x\})^2 dx = E|X - y| - \tfrac12 E|X - X'|$$

    In closed form for Gaussians and their mixtures, by samples for anything else.

    Args:
        predictive: of regression.
        target: (*batch, K), or (*batch,) if K = 1.
        num_samples: for predictives without a closed form.
        generator: for predictives without a closed form.

    Returns:
        One score per target, (*batch, K).
    """
    target = check_target(target, predictive.batch_shape, predictive.mean.shape[-1])
    if isinstance(predictive, GaussianPredictive | MultivariateGaussianPredictive):
        return gaussian_crps(predictive.mean, predictive.stddev, target)
    if isinstance(predictive, GaussianMixturePredictive):
        means = predictive.components.mean.movedim(-2, 0)  # (S, *batch, K)
        stddevs = predictive.components.stddev.movedim(-2, 0)
        weights = means.new_full((len(means),), 1 / len(means))
        return gaussian_mixture_crps(weights, means, stddevs, target)
    return sample_crps(predictive.sample((num_samples,), generator), target)


def gaussian_crps(mean: Tensor, stddev: Tensor, target: Tensor) -> Tensor:
    """CRPS of N(mean, stddev²) at the target, elementwise; all tensors of one shape."""
    return _expected_absolute(target - mean, stddev) - stddev / math.sqrt(math.pi)


def gaussian_mixture_crps(
    weights: Tensor, means: Tensor, stddevs: Tensor, target: Tensor
) -> Tensor:
    """CRPS of mixtures of Gaussians at the target.

    Args:
        weights: of the C components, summing to one, (C,) or (C, *shape).
        means: (C, *shape).
        stddevs: (C, *shape).
        target: (*shape).

    Returns:
        (*shape).
    """
    weights = weights.reshape(weights.shape + (1,) * (means.ndim - weights.ndim))
    to_target = (weights * _expected_absolute(target - means, stddevs)).sum(0)
    within = torch.zeros_like(to_target)
    for weight, mean, stddev in zip(weights, means, stddevs, strict=True):  # memory of one, not C
        distance = _expected_absolute(means - mean, torch.hypot(stddevs, stddev))
        within = within + weight * (weights * distance).sum(0)
    return to_target - 0.5 * within


def sample_crps(samples: Tensor, target: Tensor) -> Tensor:
    """Unbiased estimate of the CRPS from independent draws of the predictive.

    Args:
        samples: (S, *shape), S at least 2.
        target: (*shape).

    Returns:
        (*shape); of a good prediction from few draws it may be below zero.
    """
    count = samples.shape[0]
    check_count("the number of samples", count, 2)
    # sorted, Σ_{i<j} |x_i − x_j| = Σ_i (2i − S − 1) x_i
    rank = torch.arange(1, count + 1, dtype=samples.dtype, device=samples.device)
    signs = (2 * rank - count - 1).reshape(-1, *[1] * target.ndim)
    within = (signs * samples.sort(0).values).sum(0) / (count * (count - 1))
    return (samples - target).abs().mean(0) - within


def _expected_absolute(mean: Tensor, stddev: Tensor) -> Tensor:
    """E|X| of X ~ N(mean, stddev²); |mean| if the stddev is zero."""
    ratio = mean / stddev.clamp(min=torch.finfo(stddev.dtype).tiny)
    density = (-0.5 * ratio.square()).exp() * math.sqrt(2 / math.pi)
    return mean * torch.erf(ratio / math.sqrt(2)) + stddev * density


def brier_score(probs: Tensor, target: Tensor) -> Tensor:
    """Squared distance of class probabilities from the label, Σ_k (p_k − 1{k = y})².

    Args:
        probs: (*batch, K).
        target: class indices, (*batch,).

    Returns:
        Between 0 and 2, (*batch,).
    """
    target = check_labels(target, probs.shape[:-1])
    return (probs - F.one_hot(target, probs.shape[-1]).to(probs)).square().sum(-1)
