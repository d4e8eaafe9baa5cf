"""The part of a page that says what a model goes by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from markupsafe import Markup
from torch import Tensor

from . import figures
from .effects import (
    Effect,
    partial_dependence,
    permutation_importance,
    places,
    shuffling_slope,
)
from .reading import Array, Places, Reading, some
from .summary import date, is_calendar, level_name
from .wording import plain

MOST_ROWS = 500
MOST_PROBABILITIES = 10_000  # of all rows, unless they are few
FEWEST_ROWS = 50
MOST_EFFECTS = 12  # figures
MOST_SHUFFLED = 100  # columns; each takes its time
MOST_IMPORTANCES = 25  # listed
MOST_LETTERS = 20  # beside a figure
WIDTH, HEIGHT = 3.1, 2.2  # inches

Limits = tuple[float, float]


def influence(reading: Reading) -> dict[str, Any]:
    """Importance of all columns, and figures of the most important ones."""
    used = reading.columns.used
    loss, codes = _loss(reading)
    columns = _shuffled(reading, codes)
    rises = permutation_importance(loss, codes, columns).tolist()
    importance = dict(zip(columns.tolist(), rises, strict=True))
    order = sorted(importance, key=lambda at: (-importance[at], at))
    largest = max(*rises, 1e-12)
    rows = reading.codes[some(np.arange(len(reading.codes)), _most_rows(reading))]
    effects = {
        at: effect
        for at in order[:MOST_EFFECTS]
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
                "rise": importance[at],
                "share": max(0.0, importance[at] / largest),
            }
            for at in order[:MOST_IMPORTANCES]
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


def _most_rows(reading: Reading) -> int:
    """Fewer if there are many classes, each of which takes time."""
    return min(MOST_ROWS, max(FEWEST_ROWS, MOST_PROBABILITIES // max(len(reading.classes), 1)))


def _loss(reading: Reading) -> tuple[Callable[[Array], float], Array]:
    """What shuffling a column makes worse, and codes of which rows.

    With targets it is the NLL, and without the mean distance of predictions from those before.
    """
    labelled = reading.labelled
    rows = some(labelled if len(labelled) else np.arange(len(reading.codes)), _most_rows(reading))
    codes = reading.codes[rows]
    if len(labelled):
        target = reading.known(rows)
        return lambda shuffled: -reading.predict(shuffled).log_prob(target).mean().item(), codes
    before = reading.averages(codes)
    return lambda shuffled: float(np.abs(reading.averages(shuffled) - before).mean()), codes


def _shuffled(reading: Reading, codes: Array) -> Places:
    """Which columns to shuffle: all, or of many those that move predictions most."""
    num_used = codes.shape[1]
    if num_used <= MOST_SHUFFLED:
        return np.arange(num_used)
    model = reading.estimator.model_

    def predicted(inputs: Tensor) -> Tensor:
        found = model.scaling(model.network(inputs))
        return found.probs().amax(-1) if reading.classes else found.mean[:, 0]

    slopes = shuffling_slope(predicted, model.encoding, codes)
    return np.sort(np.argsort(-slopes, kind="stable")[:MOST_SHUFFLED])


def _effect(reading: Reading, rows: Array, at: int) -> Effect | None:
    """Of a column; none if no row has a value."""
    values = places(reading.columns.used[at], rows[:, at])
    if not len(values):
        return None
    centred = bool(reading.classes)
    effect = partial_dependence(reading.averages, rows, at, values, centred=centred)
    if not centred:
        return effect
    low, high = np.clip([effect.low, effect.high], 0, 1)  # moved, they need not be probabilities
    return effect._replace(low=low, high=high)


def _limits(effects: list[Effect], probabilities: bool) -> Limits:
    """The same for all effects, so that they can be compared."""
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
        labels = [plain(level_name(column, code), MOST_LETTERS) for code in effect.places]
        height = 0.55 + len(labels) * (0.14 + 0.1 * min(len(figures.SERIES), effect.low.shape[1]))
        size = WIDTH, max(height, 1.2)
        return figures.picture(
            f"effect-{at}",
            about,
            size,
            lambda ax: figures.category_effect(ax, effect, labels, limits, percent),
        )
    if column.kind == "date" and _on_calendar(reading, at):
        first, last = effect.places[0], effect.places[-1]
        labels = [date(day) for day in np.linspace(first, last, 3 if last - first >= 2 else 1)]
    return figures.picture(
        f"effect-{at}",
        about,
        (WIDTH, HEIGHT),
        lambda ax: figures.number_effect(ax, effect, labels, limits, percent),
    )


def _on_calendar(reading: Reading, at: int) -> bool:
    return is_calendar(reading.frame[reading.columns.used[at].name])
