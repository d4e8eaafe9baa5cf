"""What a report is about: a trained estimator, and rows of a table as it sees them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..columns import Column, Columns, as_text
from ..estimators import LastLayerClassifier, LastLayerRegressor
from ..model import TableModel, over_rows

Array = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reading:
    """A trained estimator, and rows as it sees them.

    Attributes:
        estimator: trained.
        frame: the rows.
        columns: those of the estimator, under the names of the frame.
        codes: of the rows, (num_rows, num_used).
        target_name: the column that is predicted.
        target: numbers, or those of classes, (num_rows,); NaN where there is none, and −1 for
            classes that are new.
        classes: their names; empty for regression.
        new_classes: names of classes in the rows that the model does not know.
    """

    estimator: Any
    frame: nw.DataFrame[Any]
    columns: Columns
    codes: Array
    target_name: str
    target: Array
    classes: list[str]
    new_classes: list[str]

    @property
    def labelled(self) -> Places:
        """Which rows have a target that the model could predict."""
        known = self.target >= 0 if self.classes else ~np.isnan(self.target)
        return np.flatnonzero(known)

    def known(self, rows: Places) -> Tensor:
        """Targets of labelled rows, as predictives take them, (num_rows,)."""
        target = torch.from_numpy(self.target[rows])
        return target.long() if self.classes else target

    def predict(self, codes: Array) -> Any:
        """The predictive of rows of codes."""
        return over_rows(self.estimator.model_, codes, TableModel.forward)

    def averages(self, codes: Array) -> Array:
        """What effects are of, (num_rows, K): the mean, or probabilities, of two classes one."""
        predictive = self.predict(codes)
        if not self.classes:
            return np.asarray(predictive.mean)
        probs: Array = predictive.probs().numpy()
        return probs[:, 1:] if len(self.classes) == 2 else probs

    def unusualness(self) -> Array:
        """How unusual each row is, (num_rows,)."""
        return np.asarray(over_rows(self.estimator.model_, self.codes, TableModel.ood_score))


def read(estimator: Any, frame: Any, target_name: str) -> Reading:
    """Check what a report is to be about.

    Args:
        estimator: trained, of one target.
        frame: of pandas or polars, with the columns of training; the target may be missing.
        target_name: of its column.
    """
    if not isinstance(estimator, LastLayerClassifier | LastLayerRegressor):
        raise TypeError(
            "a report is about a LastLayerRegressor or a LastLayerClassifier, got "
            f"{type(estimator).__name__}; of a pipeline pass the last step, and a frame that the "
            "other steps have transformed"
        )
    check_is_fitted(estimator)
    if np.prod(getattr(estimator, "target_shape_", ())) > 1:
        raise ValueError(
            f"a report is about one target, and the model predicts {estimator.target_shape_[0]}; "
            "fit a model for each"
        )
    table = nw.from_native(frame, eager_only=True)
    if not len(table):
        raise ValueError("a report needs at least one row, and the table has none")
    target_name = str(target_name)
    table = table.rename({name: str(name) for name in table.columns})
    columns = _named(estimator, table, target_name)
    codes = columns.codes(table)
    classes = [as_text(label) for label in getattr(estimator, "classes_", np.array([])).tolist()]
    target, new = _target(table, target_name, classes)
    return Reading(estimator, table, columns, codes, target_name, target, classes, new)


def _named(estimator: Any, table: nw.DataFrame[Any], target_name: str) -> Columns:
    """The columns of the estimator; if they are numbered, under the names of the frame."""
    columns: Columns = estimator.columns_
    if not hasattr(estimator, "feature_names_in_"):
        names = [name for name in table.columns if name != target_name]
        if len(names) != len(columns.columns):
            raise ValueError(
                f"the model was trained on {len(columns.columns)} columns without names, and the "
                f"table has {len(names)} beside the target {target_name!r}; pass those of training"
            )
        named = [replace(one, name=name) for one, name in zip(columns.columns, names, strict=True)]
        return Columns(named)
    if target_name in {column.name for column in columns.used}:
        raise ValueError(
            f"the model predicts from {target_name!r}, which cannot be its target too; name the "
            "column that it predicts, and fit without it"
        )
    return columns


def _target(table: nw.DataFrame[Any], name: str, classes: list[str]) -> tuple[Array, list[str]]:
    """Targets as numbers, and names of classes that are new."""
    if name not in table.columns:
        return np.full(len(table), np.nan), []
    column = Columns([Column(name, "category" if classes else "number", tuple(classes))])
    codes = column.codes(table)[:, 0]
    new = column.new_levels(table).get(name, [])
    return codes, new


def some(rows: Places, count: int) -> Places:
    """At most so many of the rows, at random but always the same, in order."""
    chosen = np.random.default_rng(0).permutation(len(rows))[:count]
    return rows[np.sort(chosen)]
