"""The part of a page with permutation importance and partial dependence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from markupsafe import Markup
from torch import Tensor

from ..predictions import Array
from ..reading import Indices, Reading, subsample
from . import figures
from .effects import (
    Effect,
    grid,
    partial_dependence,
    permutation_importance,
    shuffling_slope,
)
from .summary import date, is_calendar, level_name
from .wording import plain

MAX_ROWS = 500
MAX_PROBABILITIES = 10_000  # of all rows, unless rows are few
MIN_ROWS = 50
MAX_EFFECTS = 12  # figures
MAX_SHUFFLED = 100  # columns; each takes time
MAX_IMPORTANCES = 25  # listed
MAX_LETTERS = 20  # beside a figure
WIDTH, HEIGHT = 3.1, 2.2  # inches

Limits = tuple[float, float]


def influence(reading: Reading) -> dict[str, Any]:
    """Importance of columns, and figures of the effects of the most important ones."""
    used = reading.columns.used
    loss, codes = _loss(reading)
    columns = _shuffled(reading, codes)
    increases = permutation_importance(loss, codes, columns).tolist()
    importance = dict(zip(columns.tolist(), increases, strict=True))
    order = sorted(importance, key=lambda at: (-importance[at], at))
    largest = max(*increases, 1e-12)
    rows = reading.codes[subsample(np.arange(len(reading.codes)), _max_rows(reading))]
    effects = {
        at: effect
        for at in order[:MAX_EFFECTS]
        if (effect := _effect(reading, rows, at)) is not None
    }
    limits = _limits(list(effects.values()), bool(reading.classes))
    names = reading.classes[1:] if len(reading.classes) == 2 else reading.classes
    return {
        "num_used": len(used),
        "num_shuffled": len(columns),
        "importances": [
            {
                "name": plain(used[at].name),
                "increase": importance[at],
                "share": max(0.0, importance[at] / largest),
            }
            for at in order[:MAX_IMPORTANCES]
        ],
        "effect_rows": len(rows),
        "effects": [
            {
                "name": plain(used[at].name),
                "in_days": used[at].kind == "date" and not _on_calendar(reading, at),
                "figure": _figure(reading, at, effect, limits),
            }
            for at, effect in effects.items()
        ],
        "series": [
            {
                "name": plain(name),
                "colour": figures.VARIABLES[colour],
                "dashes": " ".join(f"{3.5 * dash:g}" for dash in dashes),
            }
            for name, (colour, dashes) in zip(names, figures.SERIES, strict=False)
        ],
        "num_series_left_out": max(0, len(names) - len(figures.SERIES)),
    }


def _max_rows(reading: Reading) -> int:
    """The number of rows to use, fewer if there are many classes."""
    return min(MAX_ROWS, max(MIN_ROWS, MAX_PROBABILITIES // max(len(reading.classes), 1)))


def _loss(reading: Reading) -> tuple[Callable[[Array], float], Array]:
    """The loss whose increase is the importance, and codes of the rows it is of.

    With targets it is the NLL, and without them the mean change of predictions.
    """
    labelled = reading.labelled
    rows = subsample(
        labelled if len(labelled) else np.arange(len(reading.codes)), _max_rows(reading)
    )
    codes = reading.codes[rows]
    if len(labelled):
        target = reading.known_target(rows)

        def nll(shuffled: Array) -> float:
            log_prob: Tensor = reading.predict(shuffled).predictive.log_prob(target)
            return -log_prob.mean().item()

        return nll, codes
    before = _averages(reading, codes)
    return lambda shuffled: float(np.abs(_averages(reading, shuffled) - before).mean()), codes


def _averages(reading: Reading, codes: Array) -> Array:
    """Means, or probabilities of classes but the first of two, (num_rows, K)."""
    predictive = reading.predict(codes).predictive
    if not reading.classes:
        return np.asarray(predictive.mean)
    probs: Array = predictive.probs().numpy()
    return probs[:, 1:] if len(reading.classes) == 2 else probs


def _shuffled(reading: Reading, codes: Array) -> Indices:
    """Columns to shuffle: all, or of many those that change predictions most."""
    num_used = codes.shape[1]
    if num_used <= MAX_SHUFFLED:
        return np.arange(num_used)
    model = reading.estimator.model_

    def predict(inputs: Tensor) -> Tensor:
        predictive = model.scaling(model.network(inputs))
        output: Tensor = predictive.probs().amax(-1) if reading.classes else predictive.mean[:, 0]
        return output

    slopes = shuffling_slope(predict, model.encoding, codes)
    return np.sort(np.argsort(-slopes, kind="stable")[:MAX_SHUFFLED])


def _effect(reading: Reading, rows: Array, at: int) -> Effect | None:
    """The effect of a column; None if no row has a value."""
    values = grid(reading.columns.used[at], rows[:, at])
    if not len(values):
        return None
    centred = bool(reading.classes)
    effect = partial_dependence(
        lambda codes: _averages(reading, codes), rows, at, values, centred=centred
    )
    if not centred:
        return effect
    low, high = np.clip([effect.low, effect.high], 0, 1)  # shifted, they need not be probabilities
    return effect._replace(low=low, high=high)


def _limits(effects: list[Effect], probabilities: bool) -> Limits:
    """Limits of the axis, the same for all effects so that they can be compared."""
    low = min((float(effect.low.min()) for effect in effects), default=0.0)
    high = max((float(effect.high.max()) for effect in effects), default=1.0)
    if probabilities:
        return 0.0, min(1.0, 1.05 * high)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _figure(reading: Reading, at: int, effect: Effect, limits: Limits) -> Markup:
    column, percent = reading.columns.used[at], bool(reading.classes)
    what = "probabilities" if reading.classes else f"predictions of {plain(reading.target_name)}"
    about = f"Average {what} by {plain(column.name)}."
    labels: list[str] = []
    if column.kind == "category":
        labels = [plain(level_name(column, code), MAX_LETTERS) for code in effect.grid]
        height = 0.55 + len(labels) * (0.14 + 0.1 * min(len(figures.SERIES), effect.low.shape[1]))
        size = WIDTH, max(height, 1.2)
        return figures.picture(
            f"effect-{at}",
            about,
            size,
            lambda ax: figures.category_effect(ax, effect, labels, limits, percent),
        )
    if column.kind == "date" and _on_calendar(reading, at):
        first, last = effect.grid[0], effect.grid[-1]
        labels = [date(day) for day in np.linspace(first, last, 3 if last - first >= 2 else 1)]
    return figures.picture(
        f"effect-{at}",
        about,
        (WIDTH, HEIGHT),
        lambda ax: figures.number_effect(ax, effect, labels, limits, percent),
    )


def _on_calendar(reading: Reading, at: int) -> bool:
    return is_calendar(reading.frame[reading.columns.used[at].name])
