"""From files to trained models, and from models and files to predictions and measures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from ..metrics import ClassificationMetrics, RegressionMetrics
from ..sklearn import load
from ..sklearn.folder import describe
from ..tables import TableModel, over_rows
from . import LEVEL
from .files import FileError, TableFile, listed


def infer_task(target: Any) -> tuple[str, str]:
    """Regression or classification, and why, from the values of a target."""
    known = pc.drop_null(target)
    count = len(pc.unique(known))
    if not (pa.types.is_integer(known.type) or pa.types.is_floating(known.type)):
        return "classification", f"{count} classes"
    if count == 2:
        return "classification", "two values"
    values = known.to_numpy()
    if count <= 20 and np.array_equal(values, np.round(values)):
        return "regression", f"{count} whole numbers; --task classification makes them classes"
    return "regression", f"{count} different values"


def split_target(table: pa.Table, target: str, task: str) -> tuple[pa.Table, Any, int]:
    """The other columns, the targets, and how many rows were left out because they have none."""
    values = table[target].combine_chunks()
    known = pc.is_valid(values)
    if pa.types.is_floating(values.type):
        known = pc.and_(known, pc.fill_null(pc.is_finite(values), False))
    rows = table.drop_columns([target]).filter(known)
    values = values.filter(known)
    if not rows.num_rows:
        raise FileError(f"no row has a value of {target!r}")
    if task == "classification":
        return rows, labels(values), table.num_rows - rows.num_rows
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        example = values[0].as_py()
        raise FileError(
            f"regression needs numbers, but {target!r} holds such as {example!r}; "
            "choose --task classification"
        )
    return rows, values.cast(pa.float64()).to_numpy(), table.num_rows - rows.num_rows


def labels(values: Any) -> Any:
    """Class labels as text; whole numbers without a point."""
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        return np.array([f"{value:g}" for value in numbers])
    if pa.types.is_boolean(values.type):
        return np.array([str(value).lower() for value in values.to_pylist()])
    return np.array([str(value) for value in values.to_pylist()])


class Model:
    """A model folder, for the tables it is about.

    Args:
        folder: that `lastlayer fit` wrote.
    """

    def __init__(self, folder: Path) -> None:
        self.description = describe(folder)
        self.about = self.description["about"]
        if "target" not in self.about:
            raise FileError(f"{folder} was not written by `lastlayer fit`, and names no target")
        self.estimator: Any = load(folder)
        self.new_levels: dict[str, set[str]] = {}

    @property
    def target(self) -> str:
        """The column that is predicted."""
        return str(self.about["target"])

    @property
    def classifies(self) -> bool:
        """Whether it is about classes."""
        return self.description["kind"] == "classification"

    def parts(self, file: TableFile, needed: tuple[str, ...] = ()) -> Iterator[pa.Table]:
        """The rows of a file, some at a time, with columns of the kinds they had in training."""
        used = [column.name for column in self.estimator.columns_.used]
        present = file.columns
        missing = [name for name in (*used, *needed) if name not in present]
        if missing:
            raise FileError(
                f"{file.path} lacks {listed(missing)}, which the model needs; it has "
                f"{listed(present)}"
            )
        kinds = {column.name: column.kind for column in self.estimator.columns_.used}
        kinds[self.target] = "category" if self.classifies else "number"
        return file.parts(kinds)

    def predicted(self, table: pa.Table) -> tuple[Any, Any]:
        """The predictive of the rows of a table, and how unusual they are."""
        columns = self.estimator.columns_
        codes = columns.codes(table)
        if (codes == -1).any():  # levels that are new, or numbers
            for name, levels in columns.new_levels(table).items():
                self.new_levels.setdefault(name, set()).update(levels)

        def both(model: TableModel, part: torch.Tensor) -> tuple[Any, torch.Tensor]:
            return model(part), model.ood_score(part)

        predictive, scores = over_rows(self.estimator.model_, codes, both)
        return predictive, scores.numpy()

    def predictions(self, table: pa.Table, level: float) -> pa.Table:
        """What to write about the rows of a table."""
        estimator, columns = self.estimator, {}
        predictive, scores = self.predicted(table)
        if self.classifies:
            probs = predictive.probs().numpy()
            columns["prediction"] = estimator.classes_[probs.argmax(-1)]
            names = [f"probability_{label}" for label in estimator.classes_]
            columns |= dict(zip(names, probs.T, strict=True))
        else:
            ends = dict(zip(("lower", "upper"), predictive.interval(level), strict=True))
            moments = {"mean": predictive.mean, "stddev": predictive.stddev}
            columns |= {name: value[:, 0].numpy() for name, value in (moments | ends).items()}
        columns |= {"ood_score": scores, "unusual": scores > estimator.ood_threshold_}
        return pa.table(columns)

    def evaluate(self, file: TableFile) -> dict[str, float]:
        """How good predictions of a file with targets are."""
        metrics: Any = ClassificationMetrics() if self.classifies else RegressionMetrics((LEVEL,))
        task = "classification" if self.classifies else "regression"
        rows = unusual = 0
        moments = np.zeros(2)  # sums of the targets and of their squares, about the first
        origin = None
        for part in self.parts(file, (self.target,)):
            if not part[self.target].null_count < part.num_rows:
                continue
            inputs, known, _ = split_target(part, self.target, task)
            predictive, scores = self.predicted(inputs)
            metrics.update(predictive, self._as_tensor(known))
            unusual += int((scores > self.estimator.ood_threshold_).sum())
            rows += len(known)
            if not self.classifies:
                origin = known[0] if origin is None else origin
                moments += [(known - origin).sum(), np.square(known - origin).sum()]
        if not rows:
            raise FileError(f"no row of {file.path} has a value of {self.target!r}")
        found = {name: float(value) for name, value in metrics.compute().items()}
        if not self.classifies:
            mean, square = moments / rows
            variance = square - mean**2
            found["r2"] = 1 - found["rmse"] ** 2 / variance if variance > 0 else float("nan")
        return {"rows": rows, **found, "unusual": unusual / rows}

    def _as_tensor(self, known: Any) -> torch.Tensor:
        if not self.classifies:
            return torch.from_numpy(np.array(known))
        classes = self.estimator.classes_
        unknown = sorted(set(known.tolist()) - set(classes.tolist()))
        if unknown:
            raise FileError(
                f"{self.target!r} has classes that there were not in training: {listed(unknown)}; "
                "leave those rows out"
            )
        return torch.from_numpy(np.searchsorted(classes, known))
