"""Writing the page from a trained estimator and rows."""

from __future__ import annotations

import math
import platform
from datetime import datetime, timezone
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import narwhals as nw
import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from ... import __version__
from ..._disk import replacing
from ..estimators import LastLayerClassifier, LastLayerRegressor
from ..reading import Reading, read
from .evaluation import check_finite, evaluate
from .influence import influence
from .measures import LEVEL
from .notable import notable_rows
from .summary import MAX_COLUMNS, summarise, summarise_target, unknown_columns
from .wording import number, percent, plain

# Names of held-out scores, and how to write them.
SCORES = {
    "nll": ("NLL", number),
    "rmse": ("RMSE", number),
    "r2": ("R²", number),
    "coverage_0.9": ("coverage of 90 % intervals", percent),
    "accuracy": ("accuracy", percent),
    "most_frequent": ("accuracy of the most frequent class alone", percent),
}


def write_report(
    estimator: Any,
    frame: Any,
    target_name: str,
    path: str | Path,
    title: str | None = None,
    *,
    id_column: str | None = None,
) -> None:
    """Write a self-contained HTML page about a trained model.

    It has scores, calibration, the most uncertain and the most unusual rows, permutation importance
    and partial dependence; without targets, what can be said without them. The same model and rows
    give the same page, except for the date.

    Args:
        estimator: a trained `LastLayerRegressor` of one target, or a `LastLayerClassifier`.
        frame: held-out rows of pandas, polars or pyarrow, with the columns of training and the
            target.
        target_name: the column that the model predicts; the frame, or some rows, may lack it.
        path: of the file, which is replaced in one step.
        title: of the page.
        id_column: column that identifies rows, for the lists of rows to inspect.
    """
    _check(estimator, frame)
    reading = read(estimator, frame, str(target_name))
    title = f"Predicting {target_name}" if title is None else title
    page = render(describe(reading, id_column) | {"title": plain(title, 200)})
    with replacing(Path(path)) as partial:
        partial.write_text(page, encoding="utf-8")


def _check(estimator: Any, frame: Any) -> None:
    """Raise if there can be no page about an estimator and rows."""
    if not isinstance(estimator, LastLayerClassifier | LastLayerRegressor):
        raise TypeError(
            "a report needs a LastLayerRegressor or a LastLayerClassifier, got "
            f"{type(estimator).__name__}; of a pipeline pass the last step, and a frame that the "
            "other steps have transformed"
        )
    check_is_fitted(estimator, "model_")
    if np.prod(getattr(estimator, "target_shape_", ())) > 1:
        raise ValueError(
            f"a report needs one target, and the model predicts {estimator.target_shape_[0]}; fit "
            "a model for each"
        )
    if not len(nw.from_native(frame, eager_only=True)):
        raise ValueError("a report needs at least one row, and the table has none")


def describe(reading: Reading, id_column: str | None = None) -> dict[str, Any]:
    """The contents of a page."""
    predictive = reading.predictions.predictive
    check_finite(reading)
    labelled = reading.labelled
    num_trained, num_told = reading.num_trained
    contents: dict[str, Any] = {
        "target": plain(reading.target_name),
        "classes": [plain(name) for name in reading.classes],
        "new_classes": [plain(name) for name in reading.new_classes],
        "num_rows": len(reading.codes),
        "num_labelled": len(labelled),
        "trained_share": num_trained / num_told if num_told else 0.0,
        "level": LEVEL,
        "columns": [summarise_target(reading), *summarise(reading)],
        "num_columns_left_out": max(0, len(reading.columns.columns) - MAX_COLUMNS),
        "unknown_columns": unknown_columns(reading),
        "rows": notable_rows(reading, predictive, id_column),
        "threshold": reading.estimator.ood_threshold_,
        "false_alarm_rate": reading.estimator.false_alarm_rate,
        "measures": None,
    }
    if len(labelled):
        contents |= evaluate(reading, predictive[labelled.tolist()], labelled)
    return contents | influence(reading) | _training(reading.estimator)


def render(contents: dict[str, Any]) -> str:
    """The page with its contents; all text is escaped."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "percent": percent, "plain": plain}
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(contents)


def _training(estimator: Any) -> dict[str, Any]:
    """How the model was trained."""
    parameters = {
        name: value if isinstance(value, int | float | str | tuple | None) else type(value).__name__
        for name, value in estimator.get_params().items()
    }
    held_out = {}
    for key, value in estimator.held_out_scores_.items():
        name, written = SCORES.get(key, (key, number))
        held_out[name] = written(value)
    now = datetime.now(timezone.utc)
    return {
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "num_data": estimator.num_data_,
        "num_epochs": estimator.num_epochs_,
        "weight_decay": estimator.weight_decay_,
        "tried": [trial for trial in estimator.tried_ if math.isfinite(trial["nll"])],
        "held_out": held_out,
        "held_out_by_key": dict(zip(estimator.held_out_scores_, held_out.values(), strict=True)),
        "versions": {
            "lastlayer": __version__,
            "torch": torch.__version__,
            "Python": platform.python_version(),
        },
        "moment": now.isoformat(timespec="seconds"),
        "day": now.date().isoformat(),
    }
