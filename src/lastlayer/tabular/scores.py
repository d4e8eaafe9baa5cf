"""R², the share of the variance of targets that predictions explain."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class ExplainedVariance:
    """R² of rows that come in parts, with weights; the mean over targets.

    Sums of squares about the mean are merged as by Chan, Golub & LeVeque (1983): nothing cancels,
    and targets that do not vary have a spread of exactly zero.
    """

    def __init__(self) -> None:
        self.total = 0.0  # sum of weights
        self.origin: Tensor | None = None  # the first target, which others are relative to, (K,)
        # of each target: its mean, squares about it, and squares about predictions, (K,)
        self.mean = self.spread = self.error = torch.zeros((), dtype=torch.float64)

    def update(self, prediction: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        """Add rows.

        Args:
            prediction: predicted means, (T, K).
            target: (T, K), or (T,) if K is one.
            weight: (T,).
        """
        target = target.reshape(prediction.shape).to(prediction)
        weight = torch.ones_like(target[:, 0]) if weight is None else weight.to(target)
        total = weight.sum().item()
        if not total:
            return
        share = weight.unsqueeze(-1) / total
        self.origin = target[0] if self.origin is None else self.origin
        shifted = target - self.origin
        mean = (share * shifted).sum(0)
        spread = (share * (shifted - mean).square()).sum(0)
        step, both = mean - self.mean, self.total + total
        self.spread = self.spread + total * (spread + self.total / both * step.square())
        self.error = self.error + total * (share * (target - prediction).square()).sum(0)
        self.mean, self.total = self.mean + total / both * step, both

    def compute(self) -> float:
        """R²: 1 is perfect, 0 is no better than the mean; NaN if a target does not vary."""
        r2 = (1 - self.error / self.spread).where(self.spread > 0, math.nan)
        return float(r2.mean())


def explained_variance(prediction: Tensor, target: Tensor, weight: Tensor | None = None) -> float:
    """R² of predicted means, (T, K), for targets with weights; see `ExplainedVariance`."""
    metric = ExplainedVariance()
    metric.update(prediction, target, weight)
    return metric.compute()
