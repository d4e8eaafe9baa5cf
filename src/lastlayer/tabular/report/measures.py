"""Scores of predictions, with those of trivial predictions for comparison."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, roc_auc_score
from torch import Tensor

from ...metrics import (
    CalibrationBins,
    ClassificationMetrics,
    CoverageCurve,
    RegressionMetrics,
    coverage_curve,
)
from ..predictions import Array
from ..reading import subsample
from ..scores import explained_variance
from ..values import natural_order

LEVEL = 0.9  # of the intervals in the tables
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, LEVEL, 0.95, 0.99)
MAX_IN_CURVE = 10_000  # rows; many intervals of many rows take time
MAX_CLASSES = 12  # of the confusion matrix; rarer ones share a row


class RegressionMeasures(NamedTuple):
    """Scores of regression."""

    rmse: float
    r2: float  # NaN if targets do not vary
    nll: float
    crps: float
    coverage: float  # of the intervals of LEVEL
    width: float
    baseline_rmse: float  # of always predicting the mean of these targets
    baseline_nll: float  # of a Gaussian with their mean and variance
    expected_coverage: tuple[float, float]  # 95 % range of coverage if calibrated
    curve: CoverageCurve  # at LEVELS, of at most MAX_IN_CURVE rows
    pit: Array  # probability integral transform of each target, (num_rows,)


class ClassificationMeasures(NamedTuple):
    """Scores of classification."""

    accuracy: float
    nll: float
    brier: float
    ece: float
    auroc: float  # NaN unless there are two classes, and rows of both
    baseline_accuracy: float  # of always predicting the most frequent class of these rows
    baseline_nll: float  # of always predicting the frequencies of classes
    bins: CalibrationBins
    confusion: Confusion


class Confusion(NamedTuple):
    """Confusion matrix, with rare classes in one row and column."""

    names: list[str]
    counts: NDArray[np.int64]  # observed by predicted, (K, K)


def measure_regression(predictive: Any, target: Tensor) -> RegressionMeasures:
    """Scores of predictions for targets, (num_rows,)."""
    metric = RegressionMetrics((LEVEL,))
    metric.update(predictive, target)
    scores = {name: value.item() for name, value in metric.compute().items()}
    variance = target.var(correction=0).item()
    varies = len(target) > 1 and variance > 0
    error = 1.96 * math.sqrt(LEVEL * (1 - LEVEL) / len(target))
    rows = subsample(np.arange(len(target)), MAX_IN_CURVE).tolist()
    return RegressionMeasures(
        rmse=scores["rmse"],
        r2=explained_variance(predictive.mean, target),
        nll=scores["nll"],
        crps=scores["crps"],
        coverage=scores[f"coverage_{LEVEL:g}"],
        width=scores[f"width_{LEVEL:g}"],
        baseline_rmse=math.sqrt(variance) if varies else math.nan,
        baseline_nll=0.5 * math.log(2 * math.pi * math.e * variance) if varies else math.nan,
        expected_coverage=(max(0, LEVEL - error), min(1, LEVEL + error)),
        curve=coverage_curve(predictive[rows], target[rows], LEVELS),
        pit=predictive.cdf(target)[:, 0].numpy(),
    )


def measure_classification(
    predictive: Any, target: Tensor, classes: list[str]
) -> ClassificationMeasures:
    """Scores of predictions for indices of classes, (num_rows,)."""
    metric = ClassificationMetrics()
    metric.update(predictive, target)
    scores = {name: value.item() for name, value in metric.compute().items()}
    probs = predictive.probs()
    shares = torch.bincount(target, minlength=len(classes)).double() / len(target)
    both = len(classes) == 2 and 0 < shares[0] < 1
    return ClassificationMeasures(
        accuracy=scores["accuracy"],
        nll=scores["nll"],
        brier=scores["brier"],
        ece=scores["ece"],
        auroc=float(roc_auc_score(target, probs[:, 1])) if both else math.nan,
        baseline_accuracy=shares.max().item(),
        baseline_nll=-torch.xlogy(shares, shares).sum().item(),
        bins=metric.calibration_bins(),
        confusion=_confusion(target, probs.argmax(-1), classes),
    )


def _confusion(target: Tensor, predicted: Tensor, classes: list[str]) -> Confusion:
    observed, chosen, kept = target.numpy(), predicted.numpy(), natural_order(classes)
    if len(classes) > MAX_CLASSES:
        sizes = np.bincount(observed, minlength=len(classes))
        frequent = set(np.argsort(-sizes, kind="stable")[: MAX_CLASSES - 1].tolist())
        kept = [at for at in kept if at in frequent]
    names = [classes[at] for at in kept]
    place = np.full(len(classes), len(kept))
    place[kept] = np.arange(len(kept))
    if len(kept) < len(classes):
        names.append(f"{len(classes) - len(kept)} others")
    counts = confusion_matrix(place[observed], place[chosen], labels=range(len(names)))
    return Confusion(names, counts)
