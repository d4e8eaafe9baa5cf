"""Pictures of the tables: a panel for each data set, a line for each method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lastlayer.plots._canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE

from ..published import DATASETS, SUSPECT, UCI, Estimate
from .markdown import name
from .statistics import Runs

COLOURS = {True: BLUE, False: ORANGE, None: GREY}
GROUPS = {True: "single pass", False: "several passes", None: "not in the registry"}
FAR = 4.0  # interquartile ranges above the middle half of all means: drawn at the edge
LABELS = {
    "nll": "NLL",
    "rmse": "RMSE",
    "coverage": "coverage of 90 % intervals, in percent",
}


def write(runs: Runs, folder: Path) -> None:
    """nll.png, rmse.png and coverage.png."""
    for metric in LABELS:
        # Without the version of matplotlib, the same records give the same file for longer.
        draw(runs, metric).savefig(folder / f"{metric}.png", metadata={"Software": None})


def draw(runs: Runs, metric: str) -> Figure:
    """One metric of all methods: dots are ours, hollow diamonds the paper's."""
    methods = runs.main
    size = (13, 1.5 + 0.29 * len(methods))
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    panels = figure.subplots(1, len(DATASETS), sharey=True, sharex=metric == "coverage")
    for panel, dataset in zip(panels, DATASETS, strict=True):
        _panel(panel, runs, methods, dataset, metric)
        panel.set_title(name(dataset), fontsize="medium", color=INK)
    panels[0].set_yticks(range(len(methods)))
    panels[0].set_yticklabels([runs.methods[method].label.strip("`") for method in methods])
    panels[0].set_ylim(len(methods) - 0.5, -0.5)
    figure.supxlabel(LABELS[metric], fontsize="medium")
    figure.legend(
        handles=_legend(runs, methods, metric), loc="outside upper left", ncols=6, frameon=False
    )
    return figure


def _panel(panel: Axes, runs: Runs, methods: list[str], dataset: str, metric: str) -> None:
    scale = 100 if metric == "coverage" else 1
    measured = {method: runs.estimate(method, dataset, metric) for method in methods}
    paper = {m: UCI[m, dataset, metric] for m in methods if (m, dataset, metric) in UCI}
    certain = [cell for m, cell in paper.items() if (m, dataset, metric) not in SUSPECT]
    if metric != "coverage":
        panel.set_xlim(*_limits([*filter(None, measured.values()), *certain]))
    for line, method in enumerate(methods):
        colour = GREEN if method == "ours" else COLOURS[runs.methods[method].single_pass]
        offset = 0.16 if paper else 0.0
        if cell := paper.get(method):
            note = "†" if (method, dataset, metric) in SUSPECT else ""
            _dot(panel, cell, line + offset, colour, hollow=True, note=note)
        if cell := measured[method]:
            scaled = Estimate(scale * cell.mean, scale * cell.stderr)
            _dot(panel, scaled, line - offset, colour, hollow=False)
    if metric == "coverage":
        panel.axvline(90, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    for line in range(1, len(methods)):
        groups = [runs.methods[m].single_pass for m in methods[line - 1 : line + 1]]
        if groups[0] != groups[1]:
            panel.axhline(line - 0.5, color=GREY, linewidth=0.8, zorder=0)
    panel.grid(axis="y", color=PALE, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(axis="y", length=0)
    panel.tick_params(axis="x", labelsize="small")


def _limits(cells: list[Estimate]) -> tuple[float, float]:
    """From the best to where a few bad ones would squeeze the others."""
    pairs = np.array([[cell.mean, np.nan_to_num(cell.stderr)] for cell in cells]).reshape(-1, 2)
    mean, stderr = pairs[np.isfinite(pairs[:, 0])].T
    if not len(mean):
        return 0.0, 1.0
    first, third = np.quantile(mean, [0.25, 0.75])
    high = third + FAR * max(third - first, 0.05 * abs(third), 1e-3)
    high = min(high, (mean + stderr)[mean <= high].max())
    low = (mean - stderr).min()
    margin = 0.08 * (high - low) or 1.0
    return low - margin, high + margin


def _dot(
    panel: Axes, cell: Estimate, height: float, colour: str, hollow: bool, note: str = ""
) -> None:
    """A mean with its standard error, or at the edge an arrow and the number."""
    low, high = panel.get_xlim()
    inside = low <= cell.mean <= high or panel.get_autoscalex_on()
    fill = "white" if hollow else colour
    if inside:
        panel.errorbar(
            cell.mean,
            height,
            xerr=np.nan_to_num(cell.stderr),
            fmt="D" if hollow else "o",
            markersize=4 if hollow else 4.6,
            markerfacecolor=fill,
            color=colour,
            linewidth=1.1,
        )
        return
    below = cell.mean < low
    edge, step = (low, 0.045) if below else (high, -0.045)
    step *= high - low
    if not np.isnan(cell.mean):
        shape = "<" if below else ">"
        panel.plot(edge + step, height, shape, markersize=4.5, color=colour, mfc=fill)
    side = "left" if below else "right"
    text = f"{cell.mean:.2f}{note}"
    panel.text(edge + 2 * step, height, text, ha=side, va="center", fontsize=6.5, color=colour)


def _legend(runs: Runs, methods: list[str], metric: str) -> list[Line2D]:
    groups = dict.fromkeys(runs.methods[method].single_pass for method in methods)
    handles = [
        Line2D([], [], color=COLOURS[group], marker="s", linestyle="", label=GROUPS[group])
        for group in groups
    ]
    if "ours" in methods:
        label = runs.methods["ours"].label
        handles.append(Line2D([], [], color=GREEN, marker="s", linestyle="", label=label))
    handles.append(
        Line2D([], [], color=INK, marker="o", label="measured, mean ± standard error")
    )  # fmt: skip
    if metric == "coverage":
        style = (0, (4, 3))
        handles.append(Line2D([], [], color=INK, linestyle=style, label="nominal"))
    else:
        handles.append(Line2D([], [], color=INK, marker="D", mfc="white", label="paper"))
    return handles
