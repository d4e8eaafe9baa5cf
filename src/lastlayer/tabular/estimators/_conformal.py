"""Rows that training never sees, by which intervals and sets get a guarantee."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...calibration.conformal import ConformalIntervals, upper_quantile
from ..rows import Rows

INTERVALS = ("predictive", "conformal")
ONE_IN = 5  # rows are held out,
MAX_HELD_OUT = 5000  # but no more than tell the level to within a percent


def hold_out(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Rows to train on, and a random fifth of all rows for the errors of the model.

    Copies of a row are rows of their own, so that held-out rows and new ones are exchangeable.
    """
    counts = rows.weight.astype(np.int64)
    if (counts != rows.weight).any():
        raise ValueError(
            "interval='conformal' has a guarantee for rows that all count alike, but some weights "
            "are not integers; leave out sample_weight, or pass interval='predictive'"
        )
    size = min(MAX_HELD_OUT, int(counts.sum()) // ONE_IN)
    held = np.random.default_rng(seed).multivariate_hypergeometric(counts, size)
    return _part(rows, counts - held), _part(rows, held)


def _part(rows: Rows, counts: NDArray[np.int64]) -> Rows:
    """The rows that remain, each so many times."""
    some = counts > 0
    return Rows(rows.codes[some], rows.target[some], counts[some].astype(float))


def repeated(scores: Tensor, rows: Rows) -> NDArray[np.float64]:
    """The scores of distinct rows, as often as the rows occur."""
    return np.repeat(scores.double().cpu().numpy(), rows.weight.astype(np.int64), axis=0)


def threshold(scores: NDArray[np.float64], level: float) -> Tensor:
    """The score that a new row exceeds with probability at most 1 − level, (*outputs,)."""
    return upper_quantile(torch.from_numpy(scores), level)


def intervals(scores: NDArray[np.float64], level: float) -> ConformalIntervals:
    """Intervals by scores of held-out rows, (num_rows, num_targets)."""
    conformal = ConformalIntervals(scores.shape[-1], level=level).double()
    conformal.threshold.copy_(threshold(scores, level))
    return conformal
