"""Continuous ranked probability scores, smaller is better; tensors only."""

import math

import torch
from torch import Tensor


def gaussian_crps(mean: Tensor, stddev: Tensor, target: Tensor) -> Tensor:
    """CRPS of N(mean, stddev²) at the target, elementwise; all tensors of one shape."""
    return expected_absolute(target - mean, stddev) - stddev / math.sqrt(math.pi)


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
    to_target = (weights * expected_absolute(target - means, stddevs)).sum(0)
    within = torch.zeros_like(to_target)
    for weight, mean, stddev in zip(weights, means, stddevs, strict=True):  # memory of one, not C
        distance = expected_absolute(means - mean, torch.hypot(stddevs, stddev))
        within = within + weight * (weights * distance).sum(0)
    return to_target - 0.5 * within


def expected_absolute(mean: Tensor, stddev: Tensor) -> Tensor:
    """E|X| of X ~ N(mean, stddev²); |mean| if the stddev is zero."""
    ratio = mean / stddev.clamp(min=torch.finfo(stddev.dtype).tiny)
    density = (-0.5 * ratio.square()).exp() * math.sqrt(2 / math.pi)
    return mean * torch.erf(ratio / math.sqrt(2)) + stddev * density
