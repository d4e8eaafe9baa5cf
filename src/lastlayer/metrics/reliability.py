"""Calibration: binned confidences, and coverage of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._checks import check_count, check_labels, check_range, check_target, check_weight
from ..predictive import RegressionPredictive

LEVELS = (0.5, 0.9, 0.95)


class CalibrationBins(NamedTuple):
    """Confidence and accuracy in bins of equal width; empty bins are NaN."""

    edges: Tensor  # (M + 1,)
    weight: Tensor  # examples, or their weights, in each bin, (M,)
    confidence: Tensor  # mean probability of the likeliest class, (M,)
    accuracy: Tensor  # how often it was right, (M,)

    def error(self) -> Tensor:
        """The expected calibration error: mean |accuracy − confidence| over examples, ()."""
        gap = (self.accuracy - self.confidence).abs() * self.weight
        return gap[self.weight > 0].sum() / self.weight.sum()


class CoverageCurve(NamedTuple):
    """Coverage and width of central intervals."""

    levels: Tensor  # what the intervals promise, (L,)
    coverage: Tensor  # what they keep, (L,)
    width: Tensor  # mean width of the intervals: sharpness, (L,)
    num_examples: Tensor  # (Σw)²/Σw², the examples' number if all weigh the same, ()


# ---------------------------------------------------------------------------- classification


def calibration_bins(
    probs: Tensor, target: Tensor, num_bins: int = 15, weight: Tensor | None = None
) -> CalibrationBins:
    """Sort predictions into bins by their confidence, [0, 1/M), …, [1 − 1/M, 1].

    Args:
        probs: class probabilities, (*batch, K).
        target: class indices, (*batch,).
        num_bins: M.
        weight: of examples, (*batch,).
    """
    check_count("num_bins", num_bins)
    sums = torch.zeros(3, num_bins, dtype=probs.dtype, device=probs.device)
    confidence, correct, weight = top_label(probs, target, weight)
    add_to_bins(sums, confidence * num_bins, confidence, correct, weight)
    return bins_from_sums(sums)


def expected_calibration_error(
    probs: Tensor, target: Tensor, num_bins: int = 15, weight: Tensor | None = None
) -> Tensor:
    """Mean |accuracy − confidence| over bins of equal width, (); see `calibration_bins`."""
    return calibration_bins(probs, target, num_bins, weight).error()


def adaptive_calibration_error(
    probs: Tensor, target: Tensor, num_bins: int = 15, weight: Tensor | None = None
) -> Tensor:
    """Mean |accuracy − confidence| over bins of equal weight, ().

    An example on the border of two bins is divided between them, and so are equal confidences:
    the order of the examples does not matter. Arguments as of `calibration_bins`.
    """
    check_count("num_bins", num_bins)
    confidence, correct, weight = top_label(probs, target, weight)
    values, place = confidence.unique(return_inverse=True)
    sums = torch.zeros(3, len(values), dtype=probs.dtype, device=probs.device)
    add_to_bins(sums, place, confidence, correct, weight)
    return equal_weight_error(sums, num_bins)


def top_label(
    probs: Tensor, target: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Confidence in the likeliest class, whether it is right, and weight, flat, (B,) each."""
    target = check_labels(target, probs.shape[:-1])
    weight = as_weight(weight, target.shape, None, probs)
    check_range(target.where(weight > 0, 0), probs.shape[-1])  # what is ignored may be anything
    confidence, label = probs.max(-1)
    return confidence.flatten(), (label == target).flatten(), weight.flatten()


def as_weight(
    weight: Tensor | None, batch_shape: torch.Size, num_outputs: int | None, like: Tensor
) -> Tensor:
    """Checked weights, or ones, (*batch,), or (*batch, K) if there are K outputs."""
    shape = batch_shape if num_outputs is None else (*batch_shape, num_outputs)
    if weight is None:
        return like.new_ones(shape)
    weight = check_weight(weight, batch_shape, num_outputs).to(like)
    if not bool(((weight >= 0) & weight.isfinite()).all()):
        raise ValueError("weights must be finite and not negative; zero ignores an example")
    return weight.expand(shape)


def add_to_bins(
    sums: Tensor, place: Tensor, confidence: Tensor, correct: Tensor, weight: Tensor
) -> None:
    """Add weight, confidence and correctness to the rows of sums, (3, M), at given places."""
    used = weight > 0
    confidence, weight = confidence[used].to(sums.dtype), weight[used].to(sums.dtype)
    # a confidence of NaN goes anywhere, and makes what is computed from its bin NaN
    place = place[used].nan_to_num().clamp(0, sums.shape[-1] - 1).long()
    rows = torch.stack([weight, weight * confidence, weight * correct[used].to(sums.dtype)])
    sums.index_add_(-1, place, rows)


def bins_from_sums(sums: Tensor) -> CalibrationBins:
    """Means of bins from their sums, (3, M)."""
    weight, confidence, correct = sums
    edges = torch.linspace(0, 1, len(weight) + 1, dtype=sums.dtype, device=sums.device)
    return CalibrationBins(edges, weight, confidence / weight, correct / weight)


def equal_weight_error(sums: Tensor, num_bins: int) -> Tensor:
    """The calibration error in bins of equal weight of sums, (3, …), sorted by confidence."""
    weight, confidence, correct = sums
    # Σ (correct − confidence) of the least confident is linear in their weight between two sums
    below = torch.cat([weight.new_zeros(1), weight.cumsum(0)])
    gap = torch.cat([weight.new_zeros(1), (correct - confidence).cumsum(0)])
    edges = torch.linspace(0, 1, num_bins + 1, dtype=below.dtype, device=below.device) * below[-1]
    right = torch.searchsorted(below, edges).clamp(1, len(below) - 1)
    step = (edges - below[right - 1]) / (below[right] - below[right - 1])
    at_edges = torch.lerp(gap[right - 1], gap[right], step.nan_to_num(0.0))
    return at_edges.diff().abs().sum() / below[-1]


# -------------------------------------------------------------------------------- regression


def coverage_curve(
    predictive: Any,
    target: Tensor,
    levels: Sequence[float] = LEVELS,
    weight: Tensor | None = None,
) -> CoverageCurve:
    """Coverage of central intervals, and their mean width.

    Args:
        predictive: of regression.
        target: (*batch, K), or (*batch,) if K = 1.
        levels: of the intervals, each between 0 and 1.
        weight: (*batch,), or (*batch, K).
    """
    predictive = RegressionPredictive.check(predictive, "use calibration_bins of its probs()")
    target = check_target(target, predictive.batch_shape, predictive.num_outputs)
    weight = as_weight(weight, predictive.batch_shape, target.shape[-1], predictive.mean)
    total, covered, width, squares = coverage_sums(predictive, target, levels, weight)
    return CoverageCurve(
        torch.as_tensor(levels, dtype=covered.dtype, device=covered.device),
        covered / total,
        width / total,
        total.square() / squares,
    )


def coverage_sums(
    predictive: Any, target: Tensor, levels: Sequence[float], weight: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Σw, Σw·covered (L,), Σw·width (L,) and Σw², where an example's w is its outputs' mean."""
    covered, width = [], []
    for level in levels:
        low, high = predictive.interval(level)
        covered.append(weighted_sum((low <= target) & (target <= high), weight))
        width.append(weighted_sum(high - low, weight))
    per_example = weight.mean(-1)
    return per_example.sum(), torch.stack(covered), torch.stack(width), per_example.square().sum()


def weighted_sum(values: Tensor, weight: Tensor) -> Tensor:
    """Sum over examples of the mean over outputs; values without weight may be NaN, ()."""
    terms = torch.where(weight > 0, values * weight, 0.0)
    return terms.sum() / terms.shape[-1]
