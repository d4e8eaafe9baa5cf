"""How good predictions are, as numbers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, r2_score, roc_auc_score
from torch import Tensor

from ...metrics import (
    CalibrationBins,
    ClassificationMetrics,
    CoverageCurve,
    RegressionMetrics,
    coverage_curve,
)
from ..columns import counting_order
from .reading import Array, some

LEVEL = 0.9  # of the intervals in the tables
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, LEVEL, 0.95, 0.99)
MOST_IN_CURVE = 10_000  # rows; ends of many intervals take their time
MOST_CLASSES = 12  # of the confusion matrix; those that are rarer are one


class RegressionMeasures(NamedTuple):
    """Of predicted numbers."""

    rmse: float
    r2: float  # NaN if targets do not differ
    nll: float
    crps: float
    coverage: float  # of the intervals of LEVEL
    width: float
    plain_rmse: float  # of the mean of these targets
    plain_nll: float  # of a normal distribution with their mean and variance
    chance: tuple[float, float]  # where calibrated coverage would lie, 19 times of 20
    curve: CoverageCurve  # of LEVELS, and of MOST_IN_CURVE rows at most
    pit: Array  # probability below each target, (num_rows,)


class ClassificationMeasures(NamedTuple):
    """Of predicted classes."""

    accuracy: float
    nll: float
    brier: float
    ece: float
    auroc: float  # NaN unless there are two classes, and rows of both
    plain_accuracy: float  # of always saying the most frequent class of these rows
    plain_nll: float  # of always saying their shares
    bins: CalibrationBins
    confusion: Confusion


class Confusion(NamedTuple):
    """How often each class was predicted for each, rare classes together."""

    names: list[str]
    counts: NDArray[np.int64]  # observed by predicted, (K, K)


def measure_regression(predictive: Any, target: Tensor) -> RegressionMeasures:
    """Compare predictions with targets, (num_rows,)."""
    metric = RegressionMetrics((LEVEL,))
    metric.update(predictive, target)
    found = {name: value.item() for name, value in metric.compute().items()}
    variance = target.var(correction=0).item()
    differ = len(target) > 1 and variance > 0
    error = 1.96 * math.sqrt(LEVEL * (1 - LEVEL) / len(target))
    rows = some(np.arange(len(target)), MOST_IN_CURVE).tolist()
    return RegressionMeasures(
        rmse=found["rmse"],
        r2=float(r2_score(target, predictive.mean[:, 0])) if differ else math.nan,
        nll=found["nll"],
        crps=found["crps"],
        coverage=found[f"coverage_{LEVEL:g}"],
        width=found[f"width_{LEVEL:g}"],
        plain_rmse=math.sqrt(variance) if differ else math.nan,
        plain_nll=0.5 * math.log(2 * math.pi * math.e * variance) if differ else math.nan,
        chance=(max(0, LEVEL - error), min(1, LEVEL + error)),
        curve=coverage_curve(predictive[rows], target[rows], LEVELS),
        pit=predictive.cdf(target)[:, 0].numpy(),
    )


def measure_classification(
    predictive: Any, target: Tensor, classes: list[str]
) -> ClassificationMeasures:
    """Compare predictions with the numbers of classes, (num_rows,)."""
    metric = ClassificationMetrics()
    metric.update(predictive, target)
    found = {name: value.item() for name, value in metric.compute().items()}
    probs = predictive.probs()
    shares = torch.bincount(target, minlength=len(classes)).double() / len(target)
    both = len(classes) == 2 and 0 < shares[0] < 1
    return ClassificationMeasures(
        accuracy=found["accuracy"],
        nll=found["nll"],
        brier=found["brier"],
        ece=found["ece"],
        auroc=float(roc_auc_score(target, probs[:, 1])) if both else math.nan,
        plain_accuracy=shares.max().item(),
        plain_nll=-torch.xlogy(shares, shares).sum().item(),
        bins=metric.calibration_bins(),
        confusion=_confusion(target, probs.argmax(-1), classes),
    )


def _confusion(target: Tensor, predicted: Tensor, classes: list[str]) -> Confusion:
    observed, said, kept = target.numpy(), predicted.numpy(), counting_order(classes)
    if len(classes) > MOST_CLASSES:
        counts = np.bincount(observed, minlength=len(classes))
        frequent = set(np.argsort(-counts, kind="stable")[: MOST_CLASSES - 1].tolist())
        kept = [at for at in kept if at in frequent]
    names = [classes[at] for at in kept]
    place = np.full(len(classes), len(kept))
    place[kept] = np.arange(len(kept))
    if len(kept) < len(classes):
        names.append(f"{len(classes) - len(kept)} others")
    found = confusion_matrix(place[observed], place[said], labels=range(len(names)))
    return Confusion(names, found)
