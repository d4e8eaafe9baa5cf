"""Rows to inspect: the most uncertain ones, and the most unusual ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from ..predictions import Array
from ..reading import Indices, Reading
from ..values import as_texts
from .measures import LEVEL
from .wording import NOTHING, number, plain, probability

MAX_ROWS = 10


class Row(NamedTuple):
    """A row of the table, as text."""

    predicted: str
    confidence: str  # an interval, or a probability
    runner_up: str  # the second most probable class; empty for regression
    observed: str  # empty if it is missing
    remarks: list[str]
    number: int = 0  # from one
    label: str = ""  # in the column that identifies rows, or in the index of pandas
    ood_score: str = ""


class Rows(NamedTuple):
    """The most uncertain and the most unusual rows."""

    uncertain: list[Row]
    unusual: list[Row]
    num_unusual: int
    label_name: str  # of what identifies rows; empty if there is nothing but their number


def notable_rows(reading: Reading, predictive: Any, id_column: str | None = None) -> Rows:
    """The most uncertain rows, by standard deviation or entropy, and the most unusual ones.

    Args:
        reading: estimator and rows.
        predictive: of all rows.
        id_column: that identifies rows; by default the index of pandas, if it is not the default.
    """
    ood_score, unusual = reading.predictions.ood_score, reading.unusual
    labels = _labels(reading.frame, id_column)
    describe = _describe_classes if reading.classes else _describe_numbers

    def most(score: Array) -> list[Row]:
        indices = np.argsort(-score, kind="stable")[:MAX_ROWS]
        rows = describe(reading, predictive[indices.tolist()], indices)
        return [
            row._replace(
                number=int(at) + 1,
                label=plain(labels[at]) if labels else "",
                ood_score=number(ood_score[at]),
                remarks=[*row.remarks, "unusual"] if unusual[at] else row.remarks,
            )
            for row, at in zip(rows, indices, strict=True)
        ]

    spread = predictive.entropy() if reading.classes else predictive.stddev[:, 0]
    name = (plain(id_column) if id_column else "index") if labels else ""
    return Rows(most(spread.numpy()), most(ood_score), int(unusual.sum()), name)


def _describe_numbers(reading: Reading, predictive: Any, indices: Indices) -> list[Row]:
    ends = [end[:, 0].tolist() for end in (predictive.mean, *predictive.interval(LEVEL))]
    rows = []
    for observed, mean, low, high in zip(reading.target[indices].tolist(), *ends, strict=True):
        known = not np.isnan(observed)
        remarks = ["outside"] if known and not low <= observed <= high else []
        interval = f"{number(low)} to {number(high)}"
        rows.append(Row(number(mean), interval, "", number(observed) if known else "", remarks))
    return rows


def _describe_classes(reading: Reading, predictive: Any, indices: Indices) -> list[Row]:
    names = [plain(name) for name in reading.classes]
    rows = []
    for at, probs in zip(reading.target[indices].tolist(), predictive.probs().numpy(), strict=True):
        first, second = np.argsort(-probs, kind="stable")[:2]
        observed = "" if np.isnan(at) else "(new class)" if at < 0 else names[int(at)]
        remarks = ["wrong"] if not np.isnan(at) and at != first else []
        other = f"{names[second]}, {probability(probs[second])}"
        rows.append(Row(names[first], probability(probs[first]), other, observed, remarks))
    return rows


def _labels(frame: nw.DataFrame[Any], id_column: str | None) -> list[Any]:
    """What identifies the rows; nothing for a default index of pandas."""
    if id_column is not None:
        if id_column not in frame.columns:
            raise ValueError(
                f"the table has no column {id_column!r} to identify rows; it has "
                f"{', '.join(map(repr, frame.columns[:12]))}"
            )
        return [NOTHING if text is None else text for text in as_texts(frame[id_column])]
    index: Any = nw.maybe_get_index(frame)
    labels = [] if index is None else list(index)
    return [] if labels == list(range(len(frame))) else labels
