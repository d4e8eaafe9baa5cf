"""Metrics that are sums over examples: constant memory, any batches, any number of processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from .._checks import check_count, check_labels, check_range, check_target
from ..predictive import ClassificationPredictive, RegressionPredictive
from .reliability import (
    LEVELS,
    CalibrationBins,
    CoverageCurve,
    add_to_bins,
    as_weight,
    bins_from_sums,
    coverage_sums,
    equal_weight_error,
    weighted_sum,
)
from .scores import brier_score


class _Sums(Metric):
    """Sums over examples, in double precision where the device has it."""

    full_state_update = False
    total: Tensor  # of the weights

    def __init__(self, device: torch.device | str | None = None) -> None:
        super().__init__()
        device = torch.device("cpu" if device is None else device)
        self._like = torch.zeros(
            (), dtype=torch.float32 if device.type == "mps" else torch.float64, device=device
        )
        self._add_sum("total")

    def _add_sum(self, name: str, *shape: int) -> None:
        self.add_state(name, self._like.new_zeros(shape), dist_reduce_fx="sum")

    def _mean(self, name: str) -> Tensor:
        if not self.total > 0:
            raise ValueError("metrics need at least one example with a weight above zero, got none")
        return getattr(self, name) / self.total


class RegressionMetrics(_Sums):
    """NLL, RMSE, CRPS, and coverage and mean width of central intervals, as a stream.

    Args:
        levels: of the intervals.
        device: of the sums; where the predictions are.
    """

    nll: Tensor
    squared_error: Tensor
    crps: Tensor
    covered: Tensor
    width: Tensor
    squared_weight: Tensor

    def __init__(
        self, levels: Sequence[float] = LEVELS, device: torch.device | str | None = None
    ) -> None:
        super().__init__(device)
        self.levels = tuple(levels)
        for name in ("nll", "squared_error", "crps", "squared_weight"):
            self._add_sum(name)
        for name in ("covered", "width"):
            self._add_sum(name, len(self.levels))

    def update(self, predictive: Any, target: Tensor, weight: Tensor | None = None) -> None:
        """Add examples.

        Args:
            predictive: of regression.
            target: (*batch, K), or (*batch,) if K = 1.
            weight: (*batch,), or (*batch, K) if the outputs are independent.
        """
        predictive = RegressionPredictive.check(predictive, "use ClassificationMetrics")
        shape, num_outputs = predictive.batch_shape, predictive.num_outputs
        target = check_target(target, shape, num_outputs)
        per_output = weight is not None and weight.shape != shape and num_outputs > 1
        weights = as_weight(weight, shape, num_outputs, self.total)  # (*batch, K)
        if per_output:  # K times that of each output, whose mean is the example's
            log_prob = num_outputs * predictive.log_prob_per_output(target)
        else:
            log_prob = predictive.log_prob(target).unsqueeze(-1)
        self.nll -= weighted_sum(log_prob, weights if per_output else weights[..., :1])
        self.squared_error += weighted_sum((target - predictive.mean).square(), weights)
        self.crps += weighted_sum(predictive.crps(target), weights)
        total, covered, width, squared = coverage_sums(predictive, target, self.levels, weights)
        self.total += total
        self.covered += covered
        self.width += width
        self.squared_weight += squared

    def compute(self) -> dict[str, Tensor]:
        """`nll`, `rmse`, `crps`, and for every level `coverage_0.9` and `width_0.9`."""
        means = {
            "nll": self._mean("nll"),
            "rmse": self._mean("squared_error").sqrt(),
            "crps": self._mean("crps"),
        }
        covered, width = self._mean("covered"), self._mean("width")
        for index, level in enumerate(self.levels):
            means[f"coverage_{level:g}"] = covered[index]
            means[f"width_{level:g}"] = width[index]
        return means

    def coverage_curve(self) -> CoverageCurve:
        """Coverage and width by level, over all processes."""
        with self.sync_context():
            return CoverageCurve(
                torch.as_tensor(self.levels, dtype=self.total.dtype, device=self.total.device),
                self._mean("covered"),
                self._mean("width"),
                self.total.square() / self.squared_weight,
            )


class ClassificationMetrics(_Sums):
    r"""NLL, accuracy, Brier score and calibration errors, as a stream.

    The adaptive calibration error is taken from 2¹⁶ narrow bins, evenly spaced in the log-odds of
    the confidence from −20 to 40: `adaptive_calibration_error` without keeping every confidence.
    Inside of a narrow bin the order of the examples is lost. This matters only where one of the
    M − 1 inner edges of the M bins of equal weight falls into it, and not if its confidences are
    all equal. The two errors therefore differ by at most

    $$2\sum_{\text{inner edges}} w\,\bigl(a(1 - a) + \delta/4\bigr)$$

    with w the share of all weight in the edge's narrow bin, a the accuracy in it, and
    δ < 3·10⁻⁴ the spread of its confidences: about half of these shares at worst.

    Args:
        num_bins: of both calibration errors.
        device: of the sums; where the predictions are.
    """

    nll: Tensor
    correct: Tensor
    brier: Tensor
    bins: Tensor
    narrow_bins: Tensor

    NUM_NARROW_BINS = 2**16
    SMALLEST_LOG_ODDS, LARGEST_LOG_ODDS = -20.0, 40.0  # beyond, float64 has no confidences

    def __init__(self, num_bins: int = 15, device: torch.device | str | None = None) -> None:
        super().__init__(device)
        check_count("num_bins", num_bins)
        self.num_bins = num_bins
        for name in ("nll", "correct", "brier"):
            self._add_sum(name)
        self._add_sum("bins", 3, num_bins)
        self._add_sum("narrow_bins", 3, self.NUM_NARROW_BINS)

    def update(self, predictive: Any, target: Tensor, weight: Tensor | None = None) -> None:
        """Add examples.

        Args:
            predictive: of classification.
            target: class indices, (*batch,).
            weight: (*batch,).
        """
        predictive = ClassificationPredictive.check(predictive, "use RegressionMetrics")
        log_probs = predictive.log_probs().to(self.total.dtype)  # (*batch, K)
        target = check_labels(target, log_probs.shape[:-1])
        weight = as_weight(weight, target.shape, None, self.total)
        target = target.where(weight > 0, 0)  # what is ignored need not be a label
        check_range(target, log_probs.shape[-1])
        probs = log_probs.exp()
        confidence, label = probs.max(-1)
        correct = label == target
        log_prob = log_probs.gather(-1, target.unsqueeze(-1))
        self.total += weight.sum()
        self.nll -= weighted_sum(log_prob, weight.unsqueeze(-1))
        self.correct += weighted_sum(correct.unsqueeze(-1), weight.unsqueeze(-1))
        self.brier += weighted_sum(brier_score(probs, target).unsqueeze(-1), weight.unsqueeze(-1))
        confidence, correct, weight = confidence.flatten(), correct.flatten(), weight.flatten()
        span = self.LARGEST_LOG_ODDS - self.SMALLEST_LOG_ODDS
        place = (confidence.logit() - self.SMALLEST_LOG_ODDS) / span * self.NUM_NARROW_BINS
        add_to_bins(self.bins, confidence * self.num_bins, confidence, correct, weight)
        add_to_bins(self.narrow_bins, place, confidence, correct, weight)

    def compute(self) -> dict[str, Tensor]:
        """`nll`, `accuracy`, `brier`, `ece` and `adaptive_ece`."""
        return {
            "nll": self._mean("nll"),
            "accuracy": self._mean("correct"),
            "brier": self._mean("brier"),
            "ece": bins_from_sums(self.bins).error(),
            "adaptive_ece": equal_weight_error(self.narrow_bins, self.num_bins),
        }

    def calibration_bins(self) -> CalibrationBins:
        """Confidence and accuracy in bins of equal width, over all processes."""
        with self.sync_context():
            return bins_from_sums(self.bins)
