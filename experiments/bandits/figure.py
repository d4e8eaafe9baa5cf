"""The figure of the wheel bandit: cumulative regret by the number of contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lastlayer.plots._canvas import AMBER, BLUE, GREEN, GREY, ORANGE, PALE, PURPLE, SKY

from ..harness.statistics import Runs
from .task import curve_points

COLOURS = {
    "ours": GREEN,
    "vbll": BLUE,
    "neural-linear": ORANGE,
    "neural-linear-mr": AMBER,
    "lin-full-post": PURPLE,
    "lin-diag-post": SKY,
    "lin-post-mr": GREY,
}


def draw(runs: Runs) -> Figure:
    """A panel for each δ: means over seeds, with bands of one standard error."""
    figure = Figure(figsize=(14, 3.4), dpi=150, layout="constrained")
    panels: Any = figure.subplots(1, len(runs.columns))
    for panel, column in zip(panels, runs.columns, strict=True):
        for method, colour in COLOURS.items():
            found = runs.records(method, column)
            if not found:
                continue
            contexts = curve_points(found[0]["config"]["num_contexts"])
            curves = np.array([record["metrics"]["curve"] for record in found])
            mean = curves.mean(0)
            error = curves.std(0, ddof=1) / len(curves) ** 0.5 if len(curves) > 1 else 0 * mean
            label = f"{runs.methods[method].label} ({len(curves)})"
            panel.plot(contexts, mean, color=colour, label=label, linewidth=1.5)
            panel.fill_between(contexts, mean - error, mean + error, color=colour, alpha=0.2, lw=0)
        panel.set(xscale="log", yscale="log", title=f"δ = {column}", xlabel="contexts")
        panel.grid(color=PALE, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("regret so far, % of an arm at random")
    named: dict[str, Any] = {}  # a method may have run for some δ alone
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    figure.legend(
        named.values(), named, loc="outside lower center", ncols=7, frameon=False, fontsize=8
    )
    return figure
