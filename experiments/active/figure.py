"""The figure of active learning: scores by the number of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lastlayer.plots._canvas import AMBER, BLUE, GREEN, GREY, ORANGE, PALE, PURPLE, SKY

from ..harness.statistics import Runs
from ..harness.tables import title
from .curves import budgets, curves
from .methods import ONE_BY_ONE
from .problems import METRICS

COLOURS = {
    "lcmd": GREEN,
    "bait": BLUE,
    "batchbald": PURPLE,
    "epig": SKY,
    "max_variance": ORANGE,
    "bald": AMBER,
    "entropy": "firebrick",
    "margin": "darkgoldenrod",
    "random": GREY,
}


def draw(runs: Runs) -> Figure:
    """A column of panels for each problem: means over seeds, with bands for two of the methods."""
    figure = Figure(figsize=(3 * len(runs.columns), 5.6), dpi=130, layout="constrained")
    panels: Any = figure.subplots(len(METRICS), len(runs.columns), squeeze=False)
    named: dict[str, Any] = {}  # a method may have run on some problems alone
    for row, metric in zip(panels, METRICS, strict=True):
        for panel, column in zip(row, runs.columns, strict=True):
            for method, colour in COLOURS.items():
                found = np.array(list(curves(runs, method, column, metric.name).values()))
                if not len(found):
                    continue
                labels, mean = budgets(runs, method, column), found.mean(0)
                style = "--" if method in ONE_BY_ONE else "-"
                wide = 2.2 if method in ("lcmd", "random") else 1.3
                (line,) = panel.plot(labels, mean, style, color=colour, linewidth=wide)
                named.setdefault(runs.methods[method].label, line)
                if method in ("lcmd", "random") and len(found) > 1:
                    error = found.std(0, ddof=1) / len(found) ** 0.5
                    band = (mean - error, mean + error)
                    panel.fill_between(labels, *band, color=colour, alpha=0.2, lw=0)
            panel.grid(color=PALE, linewidth=0.6)
            panel.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(f"test {metric.label}")
    for top, bottom, column in zip(panels[0], panels[-1], runs.columns, strict=True):
        top.set_title(title(column))
        bottom.set_xlabel("labels")
    figure.legend(named.values(), named, loc="outside lower center", ncols=8, frameon=False)
    return figure
