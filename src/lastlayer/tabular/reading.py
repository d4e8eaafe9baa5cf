"""Rows of a table as a trained estimator sees them, with their targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .columns import Column, Columns
from .predictions import Array, Predictions
from .rows import share_in
from .values import as_text

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reading:
    """Rows of a table as a trained estimator sees them.

    Attributes:
        estimator: trained.
        frame: the rows.
        columns: columns of the estimator, under the names of the frame.
        codes: (num_rows, num_used).
        target_name: the column that is predicted; None if its values are not read.
        target: numbers, or indices of classes, (num_rows,); NaN where it is missing, and −1 for
            classes that were not in training.
        classes: names of the classes; empty for regression.
        new_classes: names of classes in the rows that were not in training.
    """

    estimator: Any
    frame: nw.DataFrame[Any]
    columns: Columns
    codes: Array
    target_name: str | None
    target: Array
    classes: list[str]
    new_classes: list[str]

    @cached_property
    def predictions(self) -> Predictions:
        """The predictions for the rows."""
        return self.predict(self.codes)

    def predict(self, codes: Array) -> Predictions:
        """The predictions for rows of other codes."""
        return Predictions(self.estimator.model_, codes)

    @property
    def unusual(self) -> NDArray[np.bool_]:
        """Whether the OOD score of each row is above the threshold, or NaN, (num_rows,)."""
        return ~(self.predictions.ood_score <= self.estimator.ood_threshold_)

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Whether predictions are finite, which they are not for very large inputs, (num_rows,)."""
        predictive = self.predictions.predictive
        parts = [predictive.probs()] if self.classes else [predictive.mean, predictive.variance]
        return np.asarray(torch.cat(parts, -1).isfinite().all(-1))

    @property
    def labelled(self) -> Indices:
        """Indices of rows with a target that the model could predict."""
        known = self.target >= 0 if self.classes else ~np.isnan(self.target)
        return np.flatnonzero(known)

    @property
    def num_trained(self) -> tuple[int, int]:
        """Labelled rows that are equal to rows of training, and of how many this could be told."""
        fingerprint = getattr(self.estimator, "trained_rows_", "")  # which older models lack
        labelled = self.labelled
        return share_in(fingerprint, self.codes[labelled], self.target[labelled, None])

    def known_target(self, rows: Indices) -> Tensor:
        """Targets of labelled rows as predictives take them, (num_rows,)."""
        target = torch.from_numpy(self.target[rows])
        return target.long() if self.classes else target


def read(estimator: Any, table: Any, target_name: str | None = None) -> Reading:
    """Read rows of a table for a trained estimator of one target.

    Args:
        estimator: trained.
        table: frame of any library, with the columns of training; the target may be absent.
        target_name: the column that the estimator predicts; None for rows to predict only.
    """
    frame = nw.from_native(table, eager_only=True)
    frame = frame.rename({name: str(name) for name in frame.columns})
    columns = _named(estimator, frame, target_name)
    codes = columns.codes(frame)
    classes = [as_text(label) for label in getattr(estimator, "classes_", np.array([])).tolist()]
    target, new_classes = _read_target(frame, target_name, classes)
    return Reading(estimator, frame, columns, codes, target_name, target, classes, new_classes)


def _named(estimator: Any, frame: nw.DataFrame[Any], target_name: str | None) -> Columns:
    """The columns of the estimator; after training on an array, under the names of the frame."""
    columns: Columns = estimator.columns_
    if hasattr(estimator, "feature_names_in_"):
        if target_name in {column.name for column in columns.used}:
            raise ValueError(
                f"the model predicts from {target_name!r}, so it cannot be the target; name the "
                "column that the model predicts"
            )
        return columns
    names = [name for name in frame.columns if name != target_name]
    if {column.name for column in columns.columns} <= set(names):
        return columns
    if len(names) != len(columns.columns):
        raise ValueError(
            f"the model was trained on {len(columns.columns)} columns without names, and the "
            f"table has {len(names)} besides the target {target_name!r}; pass those of training"
        )
    named = zip(columns.columns, names, strict=True)
    return Columns([replace(column, name=name) for column, name in named])


def _read_target(
    frame: nw.DataFrame[Any], name: str | None, classes: list[str]
) -> tuple[Array, list[str]]:
    """Targets as numbers, and names of classes that were not in training."""
    if name is None or name not in frame.columns:
        return np.full(len(frame), np.nan), []
    column = Columns([Column(name, "category" if classes else "number", tuple(classes))])
    return column.codes(frame)[:, 0], column.new_levels(frame).get(name, [])


def subsample(rows: Indices, max_rows: int) -> Indices:
    """At most a number of rows, at random with a fixed seed, in order."""
    chosen = np.random.default_rng(0).permutation(len(rows))[:max_rows]
    return rows[np.sort(chosen)]
