"""Scores of single predictions, smaller is better; pure functions of tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import check_count, check_labels, check_range
from ..functional import gaussian_crps, gaussian_mixture_crps
from ..predictive import Predictive, RegressionPredictive

__all__ = [
    "brier_score",
    "crps",
    "gaussian_crps",
    "gaussian_mixture_crps",
    "sample_crps",
]


def crps(predictive: Predictive, target: Tensor) -> Tensor:
    r"""Continuous ranked probability score of each target, in its units.

    $$\mathrm{CRPS}(F, y) = \int (F(x) - 1\{y \le x\})^2 dx = E|X - y| - \tfrac12 E|X - X'|$$

    In closed form for Gaussians and their mixtures, by quadrature for anything else.

    Args:
        predictive: of regression.
        target: (*batch, K), or (*batch,) if K = 1.

    Returns:
        One score per target, (*batch, K).
    """
    return RegressionPredictive.check(predictive).crps(target)


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


def brier_score(probs: Tensor, target: Tensor) -> Tensor:
    """Squared distance of class probabilities from the label, Σ_k (p_k − 1{k = y})².

    Args:
        probs: (*batch, K).
        target: class indices, (*batch,).

    Returns:
        Between 0 and 2, (*batch,).
    """
    target = check_labels(target, probs.shape[:-1])
    check_range(target, probs.shape[-1])
    return (probs - F.one_hot(target, probs.shape[-1]).to(probs)).square().sum(-1)
