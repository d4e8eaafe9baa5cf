"""One call from a model and data to its metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._data import Data
from .._streaming import labelled
from .reliability import LEVELS
from .streaming import ClassificationMetrics, RegressionMetrics


def evaluate(
    model: Callable[[Any], Any],
    data: Data,
    *,
    batch_size: int = 1024,
    levels: Sequence[float] = LEVELS,
    num_bins: int = 15,
    progress: bool | None = None,
) -> dict[str, float]:
    """Evaluate a model's predictions on data with targets.

    The model runs in evaluation mode, without gradients, and is put back into the mode it was in.
    Under `torch.distributed` every process passes its own part of the data and gets the metrics
    of all of it; note that a DistributedSampler repeats examples to make all parts equal.

    Args:
        model: a network, or whatever else returns a predictive for inputs.
        data: (inputs, target) or (inputs, target, weight) in any form of `lastlayer.data`.
        batch_size: of tensors and Datasets; a DataLoader has its own.
        levels: of the intervals, for regression.
        num_bins: of the calibration errors, for classification.
        progress: whether to show a progress bar; None for where there is a terminal.

    Returns:
        `nll`, `rmse`, `crps` and for every level `coverage_0.9` and `width_0.9` for regression;
        `nll`, `accuracy`, `brier`, `ece` and `adaptive_ece` for classification. With a
        prediction that is NaN all are but accuracy and coverage, which count it as wrong.
    """
    metric: RegressionMetrics | ClassificationMetrics | None = None
    for predictive, target, weight in labelled(model, data, batch_size, progress):
        if metric is None:
            regression = predictive.task == "regression"
            device = target.device
            metric = (
                RegressionMetrics(levels, device)
                if regression
                else ClassificationMetrics(num_bins, device)
            )
        metric.update(predictive, target, weight)
    assert metric is not None  # data without examples is an error above
    return {name: value.item() for name, value in metric.compute().items()}
