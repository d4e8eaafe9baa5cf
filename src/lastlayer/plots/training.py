"""Plots of the training history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from ._canvas import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    Array,
    Style,
    legend_above,
    make_axes,
)

History = Sequence[Mapping[str, float]]

# Keys of a history with their factor, label and colour: means over examples, and parts of the
# objective that stand for all data.
MEANS = (
    ("loss", 1, "loss", INK),
    ("bound", -1, "−bound", BLUE),
    ("validation_nll", 1, "validation NLL", ORANGE),
)
PARTS = (("kl", 1, "KL", GREEN), ("log_prior", -1, "−log p(Σ)", PURPLE))


def training_curves(
    history: History, *, num_data: float | None = None, ax: Axes | None = None
) -> Axes:
    """The loss, its parts and the validation NLL by epoch; what is not in the history is left out.

    Args:
        history: what `fit` returns, or a row per epoch with any of `epoch`, `loss`, `bound`, `kl`,
            `log_prior`, `validation_nll` and `learning_rate`.
        num_data: T, the size of the training set. With it KL and log p(Σ) are divided by it, and
            with a `kl_weight` of one the parts add up to the loss; without, they have an axis of
            their own, on the right.
        ax: where to draw.
    """
    ax = make_axes(ax, "epoch", "nats per example")
    for key, factor, label, colour in MEANS:
        _draw(ax, history, key, factor, label, colour)
    right = []
    if num_data is not None:
        for key, factor, label, colour in PARTS:
            _draw(ax, history, key, factor / num_data, f"{label} / T", colour)
    elif any(key in row for row in history for key, *_ in PARTS):
        right = [make_axes(ax.twinx(), "epoch", "nats")]
        right[0].spines["right"].set_visible(True)
        for key, factor, label, colour in PARTS:
            _draw(right[0], history, key, factor, f"{label} (right)", colour, "--")
    _draw_learning_rate(ax, history)
    best = getattr(history, "best_epoch", None)
    if best is not None:
        ax.axvline(best, color=GREY, lw=1, ls=":", label=f"best epoch, {best}")
    legend_above(ax, *right)
    return ax


def _draw(
    ax: Axes, history: History, key: str, factor: float, label: str, colour: str, line: str = "-"
) -> None:
    epochs, values = _column(history, key)
    if len(values):
        style: Style = {"color": colour, "ls": line, "marker": "o" if len(values) == 1 else None}
        ax.plot(epochs, factor * values, label=label, **style)


def _draw_learning_rate(ax: Axes, history: History) -> None:
    """A strip along the bottom, without an axis; a constant needs none."""
    epochs, rates = _column(history, "learning_rate")
    if len(rates) and rates.max() > rates.min():
        style: Style = {"color": PALE, "lw": 0, "zorder": 0, "transform": ax.get_xaxis_transform()}
        label = f"learning rate, up to {rates.max():.2g}"
        ax.fill_between(epochs, 0, 0.15 * rates / rates.max(), label=label, **style)


def _column(history: History, key: str) -> tuple[Array, Array]:
    """Epochs and values of the rows that have a value."""
    rows = [(row.get("epoch", i), row[key]) for i, row in enumerate(history, 1) if key in row]
    epochs, values = np.array(rows, np.float64).reshape(-1, 2).T
    return epochs, values
