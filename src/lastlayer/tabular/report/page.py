"""From a trained estimator and rows to a page."""

from __future__ import annotations

import math
import platform
from datetime import datetime, timezone
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import torch

from ... import __version__
from ..._disk import replacing
from .evaluation import check_finite, evaluate
from .influence import influence
from .measures import LEVEL
from .reading import Reading, read
from .rows import notable_rows
from .summary import MOST_COLUMNS, summarise, summarise_target, unknown_columns
from .wording import number, percent, plain

# What held-out scores are called, and how they are written.
SCORES = {
    "nll": ("NLL", number),
    "rmse": ("RMSE", number),
    "r2": ("R²", number),
    "coverage_0.9": ("coverage of 90 % intervals", percent),
    "accuracy": ("accuracy", percent),
}


def write_report(
    estimator: Any, frame: Any, target_name: str, path: str | Path, title: str | None = None
) -> None:
    """Write a page about a trained model: one HTML file that needs nothing else.

    It says how good predictions are, whether they are as sure as they should be, which rows are
    uncertain or unusual, and what the model goes by. Without targets it says what it can.
    The same model and rows lead to the same page, but for the date.

    Args:
        estimator: a trained `LastLayerRegressor` of one target, or a `LastLayerClassifier`.
        frame: rows that were not used in training, of pandas or polars, with the columns of
            training and the target.
        target_name: the column that the model predicts; it may be missing from the frame, or from
            some rows.
        path: of the file, which is replaced in one step.
        title: of the page.
    """
    reading = read(estimator, frame, target_name)
    title = f"Predicting {target_name}" if title is None else title
    page = render(describe(reading) | {"title": plain(title, 200)})
    with replacing(Path(path)) as partial:
        partial.write_text(page, encoding="utf-8")


def describe(reading: Reading) -> dict[str, Any]:
    """All that a page says."""
    predictive = reading.predict(reading.codes)
    check_finite(reading, predictive)
    labelled = reading.labelled
    contents: dict[str, Any] = {
        "target": plain(reading.target_name),
        "classes": [plain(name) for name in reading.classes],
        "new_classes": [plain(name) for name in reading.new_classes],
        "num_rows": len(reading.codes),
        "num_labelled": len(labelled),
        "level": LEVEL,
        "columns": [summarise_target(reading), *summarise(reading)],
        "num_columns_left_out": max(0, len(reading.columns.columns) - MOST_COLUMNS),
        "unknown_columns": unknown_columns(reading),
        "rows": notable_rows(reading, predictive),
        "threshold": reading.estimator.ood_threshold_,
        "false_alarm_rate": reading.estimator.false_alarm_rate,
        "measures": None,
    }
    if len(labelled):
        contents |= evaluate(reading, predictive[labelled.tolist()], labelled)
    return contents | influence(reading) | _making(reading.estimator)


def render(contents: dict[str, Any]) -> str:
    """The page of its contents; all that is text is escaped."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "percent": percent, "plain": plain}
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(contents)


def _making(estimator: Any) -> dict[str, Any]:
    """How the model was made."""
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
        "tried": [one for one in estimator.tried_ if math.isfinite(one["nll"])],
        "held_out": held_out,
        "versions": {
            "lastlayer": __version__,
            "torch": torch.__version__,
            "Python": platform.python_version(),
        },
        "moment": now.isoformat(timespec="seconds"),
        "day": now.date().isoformat(),
    }
