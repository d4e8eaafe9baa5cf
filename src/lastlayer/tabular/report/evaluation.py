"""The part of a page that compares predictions with what was observed."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from . import figures
from .measures import LEVEL, LEVELS, measure_classification, measure_regression
from .reading import Places, Reading, some
from .wording import plain

MOST_POINTS = 300  # in a figure
SQUARE, HIGH, LOW = (4.6, 4.0), (4.8, 4.2), (4.8, 3.0)  # inches; text has its size on a telephone


def check_finite(reading: Reading, predictive: Any) -> None:
    """Raise if values are so large that predictions are not numbers."""
    parts = [predictive.probs()] if reading.classes else [predictive.mean, predictive.variance]
    finite = torch.stack([part.isfinite().all(-1) for part in parts]).all(0)
    if not finite.all():
        row = int((~finite).nonzero()[0]) + 1
        raise ValueError(
            f"the prediction of row {row} is not finite: its values are too large for the model; "
            "correct them, or leave the row out"
        )


def evaluate(reading: Reading, predictive: Any, rows: Places) -> dict[str, Any]:
    """Measures and figures.

    Args:
        reading: estimator and rows.
        predictive: of the labelled rows.
        rows: which they are.
    """
    return (_classes if reading.classes else _numbers)(reading, predictive, rows)


def _numbers(reading: Reading, predictive: Any, rows: Places) -> dict[str, Any]:
    target = reading.known(rows)
    found = measure_regression(predictive, target)
    curve = found.curve
    shown = some(np.arange(len(rows)), MOST_POINTS)
    points = predictive[shown.tolist()]
    mean, lower, upper = (part[:, 0].numpy() for part in (points.mean, *points.interval(LEVEL)))
    name = plain(reading.target_name)
    return {
        "measures": found,
        "coverage": list(zip(LEVELS, curve.coverage.tolist(), curve.width.tolist(), strict=True)),
        "coverage_figure": figures.picture(
            "coverage",
            f"Observed coverage of central intervals by their level. Intervals of {LEVEL:.0%} hold "
            f"{found.coverage:.1%}.",
            SQUARE,
            partial(figures.coverage, curve=curve),
        ),
        "pit_figure": figures.picture(
            "pit",
            "Shares of targets in each tenth of their predicted distribution.",
            SQUARE,
            partial(figures.pit_histogram, pit=found.pit),
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


def _classes(reading: Reading, predictive: Any, rows: Places) -> dict[str, Any]:
    target = reading.known(rows)
    found = measure_classification(predictive, target, reading.classes)
    confidence, predicted = predictive.probs().max(-1)
    right = (predicted == target).numpy()
    return {
        "measures": found,
        "confusion_names": [plain(name) for name in found.confusion.names],
        "confusion": found.confusion.counts.tolist(),
        "reliability_figure": figures.picture(
            "reliability",
            "How often predictions were right by how probable they were said to be. The mean "
            f"distance is {found.ece:.1%}.",
            SQUARE,
            partial(figures.reliability, bins=found.bins),
        ),
        "confidences_figure": figures.picture(
            "confidences",
            "Histogram of the probability of the predicted class, for right and wrong predictions.",
            LOW,
            lambda ax: figures.confidences(ax, confidence.numpy(), right),
        ),
    }
