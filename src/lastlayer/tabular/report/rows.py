"""Rows that are worth a look: those least certain, and those least like the ones of training."""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from .measures import LEVEL
from .reading import Array, Places, Reading
from .wording import number, plain, probability

MOST_ROWS = 10


class Row(NamedTuple):
    """In words."""

    predicted: str
    certainty: str  # an interval, or a probability
    second: str  # the class that is second likeliest; empty for regression
    observed: str  # empty if it is not known
    remarks: list[str]
    number: int = 0  # from one
    label: str = ""  # in the index of pandas; empty if that only counts
    unusualness: str = ""


class Rows(NamedTuple):
    """The two tables."""

    uncertain: list[Row]
    unusual: list[Row]
    num_unusual: int
    labelled: bool  # whether rows have labels


def notable_rows(reading: Reading, predictive: Any) -> Rows:
    """The most uncertain rows, by standard deviation or entropy, and the most unusual ones.

    Args:
        reading: estimator and rows.
        predictive: of all rows.
    """
    unusualness = reading.unusualness()
    above = unusualness > reading.estimator.ood_threshold_
    labels = _labels(reading.frame)
    words = _classes if reading.classes else _numbers

    def most(score: Array) -> list[Row]:
        places = np.argsort(-score, kind="stable")[:MOST_ROWS]
        rows = words(reading, predictive[places.tolist()], places)
        return [
            row._replace(
                number=int(at) + 1,
                label=plain(labels[at]) if labels else "",
                unusualness=number(unusualness[at]),
                remarks=[*row.remarks, "unusual"] if above[at] else row.remarks,
            )
            for row, at in zip(rows, places, strict=True)
        ]

    spread = predictive.entropy() if reading.classes else predictive.stddev[:, 0]
    return Rows(most(spread.numpy()), most(unusualness), int(above.sum()), bool(labels))


def _numbers(reading: Reading, predictive: Any, places: Places) -> list[Row]:
    ends = [end[:, 0].tolist() for end in (predictive.mean, *predictive.interval(LEVEL))]
    rows = []
    for observed, mean, low, high in zip(reading.target[places].tolist(), *ends, strict=True):
        known = not np.isnan(observed)
        remarks = ["outside"] if known and not low <= observed <= high else []
        interval = f"{number(low)} to {number(high)}"
        rows.append(Row(number(mean), interval, "", number(observed) if known else "", remarks))
    return rows


def _classes(reading: Reading, predictive: Any, places: Places) -> list[Row]:
    names = [plain(name) for name in reading.classes]
    rows = []
    for at, probs in zip(reading.target[places].tolist(), predictive.probs().numpy(), strict=True):
        first, second = np.argsort(-probs, kind="stable")[:2]
        observed = "" if np.isnan(at) else "(new class)" if at < 0 else names[int(at)]
        remarks = ["wrong"] if not np.isnan(at) and at != first else []
        other = f"{names[second]}, {probability(probs[second])}"
        rows.append(Row(names[first], probability(probs[first]), other, observed, remarks))
    return rows


def _labels(frame: nw.DataFrame[Any]) -> list[Any]:
    """Of the rows in the index of pandas; none if it only counts from zero."""
    index: Any = nw.maybe_get_index(frame)
    labels = [] if index is None else list(index)
    return [] if labels == list(range(len(frame))) else labels
