"""The part of a page that compares predictions with observed targets."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..reading import Indices, Reading, subsample
from . import figures
from .measures import LEVEL, LEVELS, measure_classification, measure_regression
from .wording import plain

MAX_POINTS = 300  # in a figure
SQUARE, HIGH, LOW = (4.6, 4.0), (4.8, 4.2), (4.8, 3.0)  # inches; text stays legible on a phone


def check_finite(reading: Reading) -> None:
    """Raise if inputs are so large that predictions overflow."""
    if not reading.finite.all():
        raise ValueError(
            f"the prediction of row {reading.finite.argmin() + 1} is not finite: its values are "
            "too large for the model; correct them, or leave out the row"
        )


def evaluate(reading: Reading, predictive: Any, rows: Indices) -> dict[str, Any]:
    """Measures and figures of predictions for labelled rows.

    Args:
        reading: estimator and rows.
        predictive: of the labelled rows.
        rows: indices of the labelled rows.
    """
    return (_classification if reading.classes else _regression)(reading, predictive, rows)


def _regression(reading: Reading, predictive: Any, rows: Indices) -> dict[str, Any]:
    target = reading.known_target(rows)
    measures = measure_regression(predictive, target)
    curve = measures.curve
    shown = subsample(np.arange(len(rows)), MAX_POINTS)
    points = predictive[shown.tolist()]
    mean, lower, upper = (part[:, 0].numpy() for part in (points.mean, *points.interval(LEVEL)))
    name = plain(reading.target_name)
    return {
        "measures": measures,
        "coverage": list(zip(LEVELS, curve.coverage.tolist(), curve.width.tolist(), strict=True)),
        "coverage_figure": figures.picture(
            "coverage",
            f"Observed coverage of central intervals by level. Intervals of {LEVEL:.0%} cover "
            f"{measures.coverage:.1%}.",
            SQUARE,
            partial(figures.coverage, curve=curve),
        ),
        "pit_figure": figures.picture(
            "pit",
            "Histogram of the probability integral transform (PIT) in ten bins.",
            SQUARE,
            partial(figures.pit_histogram, pit=measures.pit),
        ),
        "num_in_curve": round(curve.num_examples.item()),
        "num_shown": len(shown),
        "intervals_figure": figures.picture(
            "intervals",
            f"Observed by predicted {name} of {len(shown)} rows, with {LEVEL:.0%} intervals.",
            HIGH,
            lambda ax: figures.intervals(ax, mean, lower, upper, target[shown].numpy()),
        ),
    }


def _classification(reading: Reading, predictive: Any, rows: Indices) -> dict[str, Any]:
    target = reading.known_target(rows)
    measures = measure_classification(predictive, target, reading.classes)
    confidence, predicted = predictive.probs().max(-1)
    correct = (predicted == target).numpy()
    return {
        "measures": measures,
        "confusion_names": [plain(name) for name in measures.confusion.names],
        "confusion": measures.confusion.counts.tolist(),
        "reliability_figure": figures.picture(
            "reliability",
            "Accuracy by confidence, the probability of the predicted class. The expected "
            f"calibration error is {measures.ece:.1%}.",
            SQUARE,
            partial(figures.reliability, bins=measures.bins),
        ),
        "confidences_figure": figures.picture(
            "confidences",
            "Histogram of the confidence of correct and of wrong predictions.",
            LOW,
            lambda ax: figures.confidences(ax, confidence.numpy(), correct),
        ),
    }
