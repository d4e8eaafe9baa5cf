"""The figure of the sentiment experiment: metrics by the number of training reviews."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from lastlayer.plots._canvas import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY

from ..harness.statistics import Metric, Runs
from .methods import OURS, PAPER, SIZES
from .task import METRICS

COLOURS = {
    "fit": GREEN,
    "posttrain": BLUE,
    "crossfit": INK,
    "d-vbll": SKY,
    "g-vbll": PURPLE,
    "mlp": ORANGE,
    "temperature": AMBER,
    "laplace-full": PURPLE,
    "vbll": SKY,
    "logistic": GREY,
}
ROWS = {
    "as in the paper": PAPER,
    "ours and others": (*OURS, "mlp", "temperature", "laplace-full", "vbll", "logistic"),
}


def draw(runs: Runs) -> Figure:
    """Means with bands of one standard deviation over seeds: the paper's methods, then others."""
    figure = Figure(figsize=(12, 7.2), dpi=150, layout="constrained")
    parts: Any = figure.subfigures(len(ROWS), 1)
    for part, (heading, methods) in zip(parts, ROWS.items(), strict=True):
        panels = part.subplots(1, len(METRICS))
        known = [method for method in methods if runs.has(method)]
        for panel, metric in zip(panels, METRICS, strict=True):
            _panel(panel, runs, known, metric)
        part.suptitle(heading, x=0.01, ha="left", fontweight="bold", color=INK, fontsize="medium")
        handles, labels = panels[0].get_legend_handles_labels()
        part.legend(handles, labels, loc="outside upper right", ncols=8, frameon=False, fontsize=8)
    return figure


def _panel(panel: Axes, runs: Runs, methods: Sequence[str], metric: Metric) -> None:
    for method in methods:
        columns = [column for column in runs.columns if runs.records(method, column)]
        sizes = [SIZES[column] for column in columns]
        values = [metric.scale * runs.values(method, column, metric.name) for column in columns]
        mean = np.array([each.mean() for each in values])
        spread = np.array([each.std(ddof=1) if len(each) > 1 else 0.0 for each in values])
        colour, label = COLOURS[method], runs.methods[method].label.replace("`", "")
        panel.plot(sizes, mean, "o-", color=colour, label=label, markersize=3.5, linewidth=1.5)
        panel.fill_between(sizes, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
    panel.set_xscale("log")
    panel.set_xticks(list(SIZES.values()), [f"{size:,}" for size in SIZES.values()])
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set(xlabel="training reviews", ylabel=metric.label)
    panel.grid(color=PALE, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
