"""Pictures of the tables: a panel for each column, a line for each method."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lastlayer.plots._canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE

from .statistics import Estimate, Metric, Published, Runs
from .tables import title

COLOURS = {True: BLUE, False: ORANGE, None: GREY}
GROUPS = {True: "single pass", False: "several passes", None: "not in the registry"}
DASHED = (0, (4, 3))
FAR = 4.0  # interquartile ranges above the middle half of all means: drawn at the edge


def draw(
    runs: Runs,
    metric: Metric,
    published: Published | None = None,
    highlight: str = "",
    nominal: float | None = None,
) -> Figure:
    """One metric of all methods: dots are measured, hollow diamonds published.

    Args:
        runs: all records.
        metric: what to draw.
        published: another's figures.
        highlight: a method to draw in a colour of its own.
        nominal: the right value, if there is one; all panels then share their axis.
    """
    methods = runs.main
    published = Published({}) if published is None else published
    figure = Figure(figsize=(13, 1.5 + 0.29 * len(methods)), dpi=150, layout="constrained")
    panels = figure.subplots(
        1, len(runs.columns), sharey=True, sharex=nominal is not None, squeeze=False
    )[0]
    for panel, column in zip(panels, runs.columns, strict=True):
        _panel(panel, runs, column, metric, published, highlight, nominal)
        panel.set_title(title(column), fontsize="medium", color=INK)
    panels[0].set_yticks(range(len(methods)))
    panels[0].set_yticklabels([runs.methods[method].label.strip("`") for method in methods])
    panels[0].set_ylim(len(methods) - 0.5, -0.5)
    figure.supxlabel(metric.label, fontsize="medium")
    handles = _legend(runs, bool(published.cells), highlight, nominal)
    figure.legend(handles=handles, loc="outside upper left", ncols=6, frameon=False)
    return figure


def _panel(
    panel: Axes,
    runs: Runs,
    column: str,
    metric: Metric,
    published: Published,
    highlight: str,
    nominal: float | None,
) -> None:
    methods = runs.main
    measured = {method: runs.estimate(method, column, metric.name) for method in methods}
    keys = {method: (method, column, metric.name) for method in methods}
    paper = {m: published.cells[key] for m, key in keys.items() if key in published.cells}
    if nominal is None:
        certain = [cell for m, cell in paper.items() if keys[m] not in published.suspect]
        scale, sign = metric.scale, -1 if metric.higher_is_better else 1
        known = [
            Estimate(scale * cell.mean, scale * cell.stderr)
            for cell in filter(None, measured.values())
        ]
        limits = _limits([Estimate(sign * mean, stderr) for mean, stderr in [*known, *certain]])
        panel.set_xlim(*sorted(sign * limit for limit in limits))
    else:
        panel.axvline(nominal, color=INK, linewidth=0.9, linestyle=DASHED, zorder=0)
    for line, method in enumerate(methods):
        colour = GREEN if method == highlight else COLOURS[runs.methods[method].single_pass]
        offset = 0.16 if paper else 0.0
        if cell := paper.get(method):
            note = "†" if keys[method] in published.suspect else ""
            _dot(panel, cell, line + offset, colour, hollow=True, note=note)
        if cell := measured[method]:
            scaled = Estimate(*(metric.scale * value for value in cell))
            _dot(panel, scaled, line - offset, colour, hollow=False)
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
    """Limits of an axis, so that a few high values do not squeeze the others."""
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


def _legend(runs: Runs, published: bool, highlight: str, nominal: float | None) -> list[Line2D]:
    groups = dict.fromkeys(runs.methods[method].single_pass for method in runs.main)
    handles = [
        Line2D([], [], color=COLOURS[group], marker="s", linestyle="", label=GROUPS[group])
        for group in groups
    ]
    if highlight in runs.main:
        label = runs.methods[highlight].label
        handles.append(Line2D([], [], color=GREEN, marker="s", linestyle="", label=label))
    measured = "measured, mean ± standard error"
    handles.append(Line2D([], [], color=INK, marker="o", label=measured))
    if nominal is not None:
        handles.append(Line2D([], [], color=INK, linestyle=DASHED, label="nominal"))
    if published:
        handles.append(Line2D([], [], color=INK, marker="D", mfc="white", label="paper"))
    return handles
