"""The figure of Bayesian optimisation: what was found by the number of evaluations."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lastlayer.plots._canvas import AMBER, BLUE, GREEN, GREY, ORANGE, PALE, SKY

from ..harness.statistics import Runs
from .tasks import PROBLEMS

COLOURS = {
    "ours": GREEN,
    "ours-continual": SKY,
    "gp": ORANGE,
    "vbll": BLUE,
    "ensemble": AMBER,
    "random": GREY,
}


def draw(runs: Runs) -> Figure:
    """A panel for each task that has records: means over trials, bands of one standard error."""
    tasks = [name for name in runs.columns if any(name == column for _, column in runs.by_cell)]
    width = min(4, len(tasks))
    height = -(-len(tasks) // width)
    figure = Figure(figsize=(3.5 * width, 3 * height + 0.5), dpi=150, layout="constrained")
    panels: Any = figure.subplots(height, width, squeeze=False).flatten()
    named: dict[str, Any] = {}
    for panel, name in zip(panels, tasks, strict=False):
        about = PROBLEMS[name]
        for method, colour in COLOURS.items():
            found = runs.records(method, name)
            if not found:
                continue
            curves = np.array([record["metrics"]["curve"] for record in found])
            evaluations = about.initial + about.batch * np.arange(curves.shape[1])
            mean = curves.mean(0)
            error = curves.std(0, ddof=1) / len(curves) ** 0.5 if len(curves) > 1 else 0 * mean
            (line,) = panel.plot(evaluations, mean, color=colour, linewidth=1.5)
            low, high = mean - error, mean + error
            panel.fill_between(evaluations, low, high, color=colour, alpha=0.2, lw=0)
            named.setdefault(runs.methods[method].label, line)
        panel.set(title=about.title, xlabel="evaluations")
        panel.set_ylabel("best value" if about.reference is None else "hypervolume")
        panel.grid(color=PALE, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[len(tasks) :]:
        panel.set_visible(False)
    figure.legend(named.values(), named, loc="outside lower center", ncols=6, frameon=False)
    return figure
