"""A saved model and tables in files: predictions and scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from ...metrics import ClassificationMetrics, RegressionMetrics
from ..files.errors import FileError
from ..files.folder import open_folder
from ..files.inference import Findings
from ..files.parsing import Format
from ..files.tables import Part, TableFile, listed, meant
from ..predictions import max_rows
from ..reading import Reading, read
from ..scores import ExplainedVariance
from ..values import natural_order
from . import LEVEL
from .target import with_labels


class SavedModel:
    """A model folder, for tables with its columns.

    Args:
        folder: that `lastlayer fit` wrote.

    Attributes:
        new_levels: levels met so far that have no code of their own, by column.
        num_newly_missing: rows met so far with a missing value in a column without any in training.
        num_infinite: rows met so far whose predictions overflow.
        trained_share: of the rows evaluated, those that are equal to rows of training.
        findings: values met so far that could not be read, and rows that were left out.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.estimator, self.about = open_folder(folder)
        self.task: str = self.estimator.task
        self.new_levels: dict[str, set[str]] = {}
        self.num_newly_missing = self.num_infinite = 0
        self.findings = Findings()
        self.trained_share = 0.0

    @property
    def target(self) -> str:
        """The column that is predicted."""
        if "target" not in self.about:
            raise FileError(
                f"{self.folder} was not written by `lastlayer fit`, and does not name the target "
                "column; write it by `lastlayer fit`"
            )
        return str(self.about["target"])

    def format(self, name: str, kind: str) -> Format:
        """How a column of a kind was written in training."""
        known = self.about.get("formats", {}).get(name)
        if known is None or (kind == "number") != (known["kind"] == "number"):
            return Format(kind)  # of a Parquet file, or a boolean that became a number
        return Format(**known)

    def parts(self, file: TableFile, *, with_target: bool = False) -> Iterator[Part]:
        """The rows of a file, some at a time, with columns as they were written in training."""
        used = self.estimator.columns_.used
        formats = {column.name: self.format(column.name, column.kind) for column in used}
        absent = [name for name in formats if name not in file.columns]
        if absent:
            raise FileError(
                f"{file.path} lacks {listed(absent)}, which the model needs; it has "
                f"{listed(file.columns)}{meant(absent[0], file.columns)}"
            )
        if with_target:
            kind = "number" if self.task == "regression" else self.about.get("target_kind", "text")
            formats[self.target] = self.format(self.target, kind)
        size = max_rows(self.estimator.model_)
        for written, table in file.parts(formats, self.findings, totals=not with_target):
            for start in range(0, table.num_rows, size):
                rows = table.slice(start, size)
                rows = with_labels(rows, self.target, self.task) if with_target else rows
                yield Part(written.slice(start, size), rows)

    def whole(self, file: TableFile) -> pa.Table:
        """All rows of a file, with targets if it has them."""
        parts = self.parts(file, with_target=self.target in file.columns)
        return pa.concat_tables(part.rows for part in parts)

    def predictions(self, table: pa.Table, level: float) -> pa.Table:
        """Predictions for the rows of a table, as columns to write."""
        reading = self._read(table, None)
        predictive = reading.predictions.predictive
        columns = {}
        if reading.classes:
            probs = predictive.probs().numpy()
            columns["prediction"] = self.estimator.labels(probs)
            for at in natural_order(reading.classes):
                columns[f"probability_{reading.classes[at]}"] = probs[:, at]
            if self.estimator.interval == "conformal":
                sets = self.estimator.sets(predictive, level)
                columns["set"] = ["|".join(np.array(reading.classes)[row]) for row in sets]
        else:
            ends = dict(
                zip(("lower", "upper"), self.estimator.ends(predictive, level), strict=True)
            )
            moments = {"mean": predictive.mean, "stddev": predictive.stddev}
            columns |= {name: value[:, 0].numpy() for name, value in (moments | ends).items()}
        scores = {"ood_score": reading.predictions.ood_score, "unusual": reading.unusual}
        return pa.table(columns | scores)

    def evaluate(self, file: TableFile) -> dict[str, float]:
        """Scores of predictions for a file with targets."""
        classes = self.task == "classification"
        metrics: Any = ClassificationMetrics() if classes else RegressionMetrics((LEVEL,))
        explained = ExplainedVariance()
        rows = unusual = 0
        trained, counts = np.zeros(2, int), Counter[float]()
        file.require([self.target])
        for part in self.parts(file, with_target=True):
            labelled = part.rows.filter(pc.is_valid(part.rows[self.target]))
            if not labelled.num_rows:
                continue
            reading = self._read(labelled, self.target)
            target, predictive = self._known_target(reading), reading.predictions.predictive
            metrics.update(predictive, target)
            if classes:
                counts.update(target.tolist())
            else:
                explained.update(predictive.mean, target)
            unusual += int(reading.unusual.sum())
            trained += np.array(reading.num_trained)
            rows += labelled.num_rows
        if not rows:
            raise FileError(f"no row of {file.path} has a value of {self.target!r}")
        scores = {name: float(value) for name, value in metrics.compute().items()}
        if classes:
            scores["most_frequent"] = max(counts.values()) / rows
        else:
            scores["r2"] = explained.compute()
        self.trained_share = trained[0] / max(1, trained[1])
        return {"rows": rows, **scores, "unusual": unusual / rows}

    def _read(self, table: pa.Table, target: str | None) -> Reading:
        """Read rows of a table, and count what was not in training."""
        reading = read(self.estimator, table, target)
        encoding = self.estimator.model_.encoding
        newly_missing = encoding.num_newly_missing(torch.from_numpy(reading.codes))
        self.num_newly_missing += int((newly_missing > 0).sum())
        self.num_infinite += int((~reading.finite).sum())
        if (reading.codes == -1).any():  # levels without a code, or numbers
            for name, levels in reading.columns.new_levels(table).items():
                self.new_levels.setdefault(name, set()).update(levels)
        return reading

    def _known_target(self, reading: Reading) -> torch.Tensor:
        """Targets of rows that all have one."""
        if reading.new_classes:
            raise FileError(
                f"{self.target!r} has classes that were not in training: "
                f"{listed(reading.new_classes)}; leave out those rows"
            )
        return reading.known_target(reading.labelled)
