"""From files to trained models, and from models and files to predictions and measures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from ...metrics import ClassificationMetrics, RegressionMetrics
from ..columns import as_text, counting_order
from ..estimators import load
from ..estimators.folder import describe
from ..model import TableModel, over_rows, rows_together
from . import LEVEL
from .files import FileError, TableFile, listed

MOST_UNREPEATED = 20  # classes that hardly any two rows share


def infer_task(target: Any) -> tuple[str, str]:
    """Regression or classification, and why, from the values of a target."""
    known = pc.drop_null(_plain(target))
    _check_target(known.type)
    if len(known) == 1:
        raise FileError("just one row has a target: there is nothing to learn from")
    count = len(pc.unique(known))
    if count == 1:
        raise FileError(
            f"the target is always {as_text(known[0].as_py())}: there is nothing to predict"
        )
    if not _is_number(known.type):
        if count > MOST_UNREPEATED and 2 * count > len(known):
            raise FileError(
                f"the target holds text such as {known[0].as_py()!r}, with {count} different "
                f"values in {len(known)} rows; are they numbers with units or signs? Write them "
                "as 1234.5, or choose --task classification"
            )
        return "classification", f"{count} classes"
    if count == 2:
        return "classification", "two values"
    values = known.to_numpy()
    if count <= 20 and np.array_equal(values, np.round(values)):
        return "regression", f"{count} whole numbers; --task classification makes them classes"
    return "regression", f"{count:,} different values from {values.min():g} to {values.max():g}"


def _check_target(kind: pa.DataType) -> None:
    """Raise if there is no way to predict such values."""
    if pa.types.is_temporal(kind):
        raise FileError(
            "the target holds dates or times, which cannot be predicted; make them numbers, such "
            "as days since the first, or text, if they are classes"
        )
    if pa.types.is_nested(kind):
        raise FileError(f"the target holds {kind}, which cannot be predicted; name another")


def split_target(table: pa.Table, target: str, task: str) -> tuple[pa.Table, Any, int]:
    """The other columns, the targets, and how many rows were left out because they have none."""
    values = _plain(table[target].combine_chunks())
    _check_target(values.type)
    known = pc.is_valid(values)
    rows = table.drop_columns([target]).filter(known)
    values = values.filter(known)
    if not rows.num_rows:
        raise FileError(f"no row has a value of {target!r}")
    if task == "classification":
        return rows, labels(values), table.num_rows - rows.num_rows
    if not _is_number(values.type):
        example = values[0].as_py()
        raise FileError(
            f"regression needs numbers, but {target!r} holds such as {example!r}; "
            "choose --task classification"
        )
    return rows, values.cast(pa.float64(), safe=False).to_numpy(), table.num_rows - rows.num_rows


def labels(values: Any) -> Any:
    """Class labels as text; whole numbers without a point."""
    texts = [as_text(value) for value in values.to_pylist()]
    return np.array([text.lower() if pa.types.is_boolean(values.type) else text for text in texts])


def kind_of(values: Any) -> str:
    """What the labels of a CSV file must be read as, to be those of these values."""
    kind = _plain(values).type
    return "number" if _is_number(kind) else "truth value" if pa.types.is_boolean(kind) else "text"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _plain(values: Any) -> Any:
    """Decimals as numbers, and null for what is not finite."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))


class Model:
    """A model folder, for the tables it is about.

    Args:
        folder: that `lastlayer fit` wrote.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.description = describe(folder)
        self.estimator: Any = load(folder)
        self.about: dict[str, Any] = self.description["about"]
        self.new_levels: dict[str, set[str]] = {}
        self.new_gaps = 0

    @property
    def target(self) -> str:
        """The column that is predicted."""
        if "target" not in self.about:
            raise FileError(
                f"{self.folder} was not written by `lastlayer fit`, and names no target to compare "
                "with"
            )
        return str(self.about["target"])

    @property
    def classifies(self) -> bool:
        """Whether it is about classes."""
        return self.description["kind"] == "classification"

    def parts(self, file: TableFile, *, with_target: bool = False) -> Iterator[pa.Table]:
        """The rows of a file, some at a time, with columns of the kinds they had in training."""
        kinds = {column.name: column.kind for column in self.estimator.columns_.used}
        missing = [name for name in kinds if name not in file.columns]
        if missing:
            raise FileError(
                f"{file.path} lacks {listed(missing)}, which the model needs; it has "
                f"{listed(file.columns)}"
            )
        if with_target:
            kinds[self.target] = self.about.get("target_kind", "text")
        size = rows_together(self.estimator.model_)
        for part in file.parts(kinds):
            for start in range(0, part.num_rows, size):
                yield part.slice(start, size)

    def whole(self, file: TableFile) -> pa.Table:
        """All rows of a file, with targets, if it has them, as in training: classes as text."""
        known = self.target in file.columns
        table = pa.concat_tables(self.parts(file, with_target=known))
        if not known:
            return table
        values = _plain(table[self.target].combine_chunks())
        if self.classifies:
            texts = np.full(len(values), None, object)
            texts[pc.is_valid(values).to_numpy(zero_copy_only=False)] = labels(values.drop_null())
            values = pa.array(texts, pa.string())
        return table.set_column(table.column_names.index(self.target), self.target, values)

    def predicted(self, table: pa.Table) -> tuple[Any, Any]:
        """The predictive of the rows of a table, and how unusual they are."""
        columns = self.estimator.columns_
        codes = columns.codes(table)
        gaps = self.estimator.model_.encoding.new_gaps(torch.from_numpy(codes))
        self.new_gaps += int((gaps > 0).sum())
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
            for at in counting_order(estimator.classes_.tolist()):
                columns[f"probability_{estimator.classes_[at]}"] = probs[:, at]
        else:
            ends = dict(zip(("lower", "upper"), predictive.interval(level), strict=True))
            moments = {"mean": predictive.mean, "stddev": predictive.stddev}
            columns |= {name: value[:, 0].numpy() for name, value in (moments | ends).items()}
        columns |= {"ood_score": scores, "unusual": self._unusual(scores)}
        return pa.table(columns)

    def _unusual(self, scores: Any) -> Any:
        """Whether rows are, also where a score is not a number."""
        return ~(scores <= self.estimator.ood_threshold_)

    def evaluate(self, file: TableFile) -> dict[str, float]:
        """How good predictions of a file with targets are."""
        metrics: Any = ClassificationMetrics() if self.classifies else RegressionMetrics((LEVEL,))
        task = "classification" if self.classifies else "regression"
        rows = unusual = 0
        moments = np.zeros(2)  # sums of the targets and of their squares, about the first
        origin = None
        file.require([self.target])
        for part in self.parts(file, with_target=True):
            if _plain(part[self.target]).null_count == part.num_rows:
                continue
            inputs, known, _ = split_target(part, self.target, task)
            predictive, scores = self.predicted(inputs)
            metrics.update(predictive, self._as_tensor(known))
            unusual += int(self._unusual(scores).sum())
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
