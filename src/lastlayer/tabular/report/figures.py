"""Figures as SVG inside a page, in the colours of the page."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ...metrics import CalibrationBins, CoverageCurve
from ...plots import calibration_curve
from ...plots._canvas import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    Style,
    as_array,
    make_axes,
)
from ..predictions import Array
from .effects import Effect

# Every colour of a figure is a CSS variable of the page, with values for light and dark themes.
VARIABLES = {
    BLUE: "blue",
    ORANGE: "orange",
    GREEN: "green",
    PURPLE: "purple",
    AMBER: "amber",
    SKY: "sky",
    GREY: "grey",
    PALE: "pale",
    INK: "ink",
    "#ffffff": "paper",
}
# Colours and dashes of classes.
SERIES = (
    (BLUE, ()),
    (ORANGE, (5, 2)),
    (GREEN, (1.5, 1.5)),
    (PURPLE, (6, 1.5, 1.5, 1.5)),
    (AMBER, (3, 1)),
    (SKY, (8, 2)),
)
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lastlayer",
    "text.parse_math": False,  # names may contain dollar signs
    "text.usetex": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # part of matplotlib: the same layout everywhere
    "font.size": 9,
    "legend.fontsize": 8,
    "axes.linewidth": 0.6,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    **dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor"], INK),
    **dict.fromkeys(["xtick.color", "ytick.color"], INK),
}
FONT = "system-ui, sans-serif"

Draw = Callable[[Axes], Any]


def picture(name: str, description: str, size: tuple[float, float], draw: Draw) -> Markup:
    """A figure as SVG.

    Args:
        name: unique in the page.
        description: alternative text.
        size: in inches.
        draw: draws on the axes it is given.
    """
    with mpl.rc_context(), warnings.catch_warnings():
        # the browser has fonts for glyphs that this one lacks
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        mpl.rcdefaults()  # not the user's settings
        mpl.rcParams.update(SETTINGS)
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        file = StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return _in_page(file.getvalue(), name, description)


def _in_page(svg: str, name: str, description: str) -> Markup:
    """The SVG without headers, with unique ids and the colours of the page."""
    svg = svg[svg.index("<svg") :]
    for part in ("metadata", "style", "clipPath"):
        svg = re.sub(rf"<{part}\b.*?</{part}>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->|<defs>\s*</defs>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'xlink:href="#([^"]+)"', svg))

    def adapt(tag: re.Match[str]) -> str:
        text = tag.group()
        if text.startswith("<svg"):
            box = re.findall(r'viewBox="[^"]*"', text)[0]
            return f'<svg {box} role="img" aria-label="{escape(description)}">'
        text = re.sub(r' clip-path="[^"]*"', "", text)
        text = re.sub(
            r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text
        )
        text = re.sub(r'xlink:href="#', f'href="#{name}-', text)
        text = re.sub(r'(font: [^;"]*?px) [^;"]+', rf"\1 {FONT}", text)
        text = re.sub(r'font-family: [^;"]+', f"font-family: {FONT}", text)
        text = re.sub(r"#[0-9a-f]{6}\b", lambda m: f"var(--{VARIABLES[m[0]]})", text)
        return re.sub(r"(\d\.\d\d)\d+", r"\1", text)  # a hundredth of a point is enough

    # text of users is between tags, where < and > are escaped
    return Markup(re.sub(r"<[^>]*>", adapt, svg))


# ------------------------------------------------------------------------------ calibration


def coverage(ax: Axes, curve: CoverageCurve) -> None:
    """Observed coverage by level."""
    calibration_curve(curve, ax=ax)
    _percent(ax.xaxis, ax.yaxis)
    ax.set(xlabel="level of the interval", ylabel="observed coverage")
    _legend_above(ax)


def pit_histogram(ax: Axes, pit: Array) -> None:
    """Histogram of the probability integral transform."""
    counts, edges = np.histogram(pit, 10, (0, 1))
    make_axes(ax, "predicted probability below the target (PIT)", "share of rows")
    bars: Style = {"align": "edge", "color": BLUE, "alpha": 0.6, "edgecolor": "white", "lw": 0.8}
    ax.bar(edges[:-1], counts / len(pit), 0.1, label="observed", **bars)
    ax.axhline(0.1, color=INK, ls="--", lw=1, label="calibrated")
    error = 1.96 * np.sqrt(0.09 / len(pit))
    ends = [0.1 - error, 0.1 + error]
    dots: Style = {"color": INK, "ls": ":", "lw": 1, "label": "calibrated, 95 % of samples"}
    ax.hlines([end for end in ends if end > 0], 0, 1, **dots)
    ax.set(xlim=(0, 1))
    _percent(ax.xaxis, ax.yaxis)
    _legend_above(ax)


def reliability(ax: Axes, bins: CalibrationBins) -> None:
    """Accuracy by confidence, with the range expected of calibrated predictions."""
    _, weight, confidence, accuracy = (
        as_array(part)[as_array(bins.weight) > 0]
        for part in (bins.edges[1:], bins.weight, bins.confidence, bins.accuracy)
    )
    make_axes(ax, "confidence: probability of the predicted class", "accuracy")
    error = 1.96 * np.sqrt(confidence * (1 - confidence) / weight)
    low, high = np.clip([confidence - error, confidence + error], 0, 1)
    ax.vlines(confidence, low, high, color=PALE, lw=9, label="calibrated, 95 % of samples")
    ax.plot([0, 1], [0, 1], "--", color=INK, lw=1, label="calibrated")
    size = 12 + 120 * weight / weight.sum()
    ax.scatter(confidence, accuracy, size, color=BLUE, zorder=3, label="observed")
    ax.set(xlim=(0, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    _percent(ax.xaxis, ax.yaxis)
    _legend_above(ax)


# ------------------------------------------------------------------------------- intervals


def intervals(ax: Axes, mean: Array, lower: Array, upper: Array, target: Array) -> None:
    """Targets by predictions, with intervals."""
    make_axes(ax, "predicted", "observed")
    inside = (lower <= target) & (target <= upper)
    pen_up = np.full_like(mean, np.nan)
    across, along = np.stack([mean, mean, pen_up], 1), np.stack([lower, upper, pen_up], 1)
    style: Style = {"color": GREY, "lw": 1, "alpha": 0.45}
    ax.plot(across.ravel(), along.ravel(), label="90 % interval", **style)
    ends = [min(lower.min(), target.min()), max(upper.max(), target.max())]
    ax.plot(ends, ends, "--", color=INK, lw=1, label="predicted = observed")
    for kept, colour, marker, name in (
        (inside, BLUE, "o", "inside"),
        (~inside, ORANGE, "X", "outside"),
    ):
        label = f"{name}, {kept.sum()}"
        if kept.any():
            ax.plot(mean[kept], target[kept], marker, color=colour, ms=4, mew=0, label=label)
    _legend_above(ax)


def confidences(ax: Axes, confidence: Array, correct: Array) -> None:
    """Histograms of the confidence of correct and of wrong predictions."""
    make_axes(ax, "confidence: probability of the predicted class", "rows")
    edges = np.linspace(0, 1, 21)
    right, wrong = (np.histogram(confidence[correct == at], edges)[0] for at in (1, 0))
    style: Style = {"align": "edge", "edgecolor": "white", "lw": 0.5}
    ax.bar(edges[:-1], right, 0.05, color=BLUE, alpha=0.75, label="correct", **style)
    ax.bar(edges[:-1], wrong, 0.05, right, color=ORANGE, label="wrong", **style)
    ax.set(xlim=(0, 1))
    _percent(ax.xaxis)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _legend_above(ax)


# --------------------------------------------------------------------------------- effects


def number_effect(
    ax: Axes, effect: Effect, labels: Sequence[str], limits: tuple[float, float], percent: bool
) -> None:
    """Partial dependence on a number; labels, if any, are equally spaced."""
    make_axes(ax, "", "")
    for at, (colour, dashes) in zip(range(effect.average.shape[1]), SERIES, strict=False):
        low, high = effect.low[:, at], effect.high[:, at]
        ax.fill_between(effect.grid, low, high, color=colour, alpha=0.15, lw=0)
        style: Style = {"color": colour, "marker": "o", "ms": 2.5, "mew": 0, "lw": 1.3}
        style |= {"ls": (0, dashes)} if dashes else {}
        ax.plot(effect.grid, effect.average[:, at], **style)
    whole = bool((effect.grid == effect.grid.round()).all())
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=whole))
    if labels:
        ax.set_xticks(np.linspace(effect.grid[0], effect.grid[-1], len(labels)), labels)
    ax.set_ylim(limits)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    if percent:
        _percent(ax.yaxis, decimals=None if limits[1] < 0.1 else 0)


def category_effect(
    ax: Axes, effect: Effect, labels: Sequence[str], limits: tuple[float, float], percent: bool
) -> None:
    """Partial dependence on a category, one level above the other."""
    make_axes(ax, "", "")
    count = min(effect.average.shape[1], len(SERIES))
    places = -np.arange(len(labels), dtype=float)
    for at, (colour, _) in zip(range(count), SERIES, strict=False):
        here = places - 0.6 * ((at + 0.5) / count - 0.5)
        ax.hlines(here, effect.low[:, at], effect.high[:, at], color=colour, alpha=0.2, lw=5)
        ax.plot(effect.average[:, at], here, "o", color=colour, ms=4.5, mew=0)
    ax.set_yticks(places, labels)
    ax.set_ylim(places[-1] - 0.6, 0.6)
    ax.set_xlim(limits)
    ax.xaxis.set_major_locator(MaxNLocator(2))  # names of levels leave little space
    if percent:
        _percent(ax.xaxis, decimals=None if limits[1] < 0.1 else 0)


def _percent(*axes: Axis, decimals: int | None = 0) -> None:
    for axis in axes:
        axis.set_major_formatter(PercentFormatter(1, decimals, symbol="\u00a0%"))


def _legend_above(ax: Axes) -> None:
    """A legend outside the data, narrow enough for a phone."""
    place: Style = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1), "borderpad": 0.2}
    ax.legend(frameon=False, ncols=2, columnspacing=1.2, markerscale=0.8, **place)
