"""Plots of calibration and of out-of-distribution detection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from .. import metrics
from .._checks import check_choice
from ..ood import Comparison
from ..predictive import ClassificationPredictive
from ._canvas import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    Style,
    as_array,
    legend_above,
    make_axes,
)

CURVE_LEVELS = tuple(percent / 100 for percent in range(5, 100, 5))
COLOURS, MARKERS = (BLUE, ORANGE, GREEN, PURPLE), "osD^"  # of data sets
DETECTION = ("auroc", "aupr", "fpr95")


def reliability_diagram(
    predictive: Any,
    target: Tensor | None = None,
    *,
    num_bins: int = 15,
    weight: Tensor | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Accuracy by confidence in the likeliest class, above a histogram of the confidences.

    Args:
        predictive: of classification, class probabilities (*batch, K), or the
            `metrics.CalibrationBins` of a stream.
        target: class indices, (*batch,); none with bins.
        num_bins: of equal width.
        weight: of examples, (*batch,).
        ax: where to draw.
    """
    bins = predictive
    if not isinstance(bins, metrics.CalibrationBins):
        probs = predictive
        if not isinstance(predictive, Tensor):
            probs = ClassificationPredictive.check(predictive, "use calibration_curve").probs()
        bins = metrics.calibration_bins(probs, _needed(target), num_bins, weight)
    edges, weights, confidence, accuracy = map(as_array, bins)
    ax = make_axes(ax, "", "accuracy")
    full = weights > 0
    left, width, gap = edges[:-1][full], np.diff(edges)[full], (confidence - accuracy)[full]
    style: Style = {"align": "edge", "edgecolor": "white", "lw": 0.5}
    ax.bar(left, accuracy[full], width, color=BLUE, alpha=0.75, label="accuracy", **style)
    hatched: Style = {"facecolor": "none", "edgecolor": ORANGE, "hatch": "/////", "lw": 1}
    name = "gap to the confidence"
    ax.bar(left, gap, width, accuracy[full], align="edge", label=name, **hatched)
    ax.plot([0, 1], [0, 1], "--", color=INK, lw=1, label="calibrated")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.tick_params(labelbottom=False)
    title = f"ECE {bins.error().item():.3f}"
    ax.legend(frameon=False, loc="upper left", title=title, alignment="left")
    below = make_axes(ax.inset_axes((0, -0.3, 1, 0.25), sharex=ax), "confidence", "share")
    below.bar(left, (weights / weights.sum())[full], width, color=GREY, **style)
    return ax


def calibration_curve(
    predictive: Any,
    target: Tensor | None = None,
    *,
    levels: Sequence[float] = CURVE_LEVELS,
    weight: Tensor | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Observed coverage of central intervals by their nominal coverage.

    The grey band is where 95 % of the observed coverages of calibrated intervals would lie, by
    the normal approximation of the binomial with one trial per example.

    Args:
        predictive: of regression, or the `metrics.CoverageCurve` of a stream.
        target: (*batch, K), or (*batch,) if K = 1; none with a curve.
        levels: of the intervals.
        weight: (*batch,), or (*batch, K).
        ax: where to draw.
    """
    curve = predictive
    if not isinstance(curve, metrics.CoverageCurve):
        curve = metrics.coverage_curve(predictive, _needed(target), levels, weight)
    ax = make_axes(ax, "expected coverage", "observed coverage")
    expected = np.linspace(0, 1, 201)
    error = 1.96 * np.sqrt(expected * (1 - expected) / curve.num_examples.item())
    low, high = np.clip([expected - error, expected + error], 0, 1)
    ax.fill_between(expected, low, high, color=PALE, lw=0, label="calibrated, 95 % of samples")
    ax.plot([0, 1], [0, 1], "--", color=INK, lw=1, label="calibrated")
    style: Style = {"color": BLUE, "markersize": 4}
    name = f"observed, {curve.num_examples.item():.4g} examples"
    ax.plot(as_array(curve.levels), as_array(curve.coverage), "o-", label=name, **style)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(frameon=False, loc="upper left")
    return ax


def ood_histogram(
    in_scores: Tensor,
    out_scores: Tensor,
    *,
    num_bins: int = 40,
    label: str = "score, higher is further out",
    ax: Axes | None = None,
) -> Axes:
    """Histograms of the scores of in-distribution and out-of-distribution inputs.

    Args:
        in_scores: of in-distribution inputs, any shape.
        out_scores: of others, any shape.
        num_bins: over the range of both; infinite scores count in the outermost.
        label: of the scores' axis.
        ax: where to draw.
    """
    detection = metrics.ood(in_scores, out_scores)
    inside, outside = as_array(in_scores).ravel(), as_array(out_scores).ravel()
    ax = make_axes(ax, label, "share of each")
    both = np.concatenate([inside, outside])
    edges = np.histogram_bin_edges(both[np.isfinite(both)], num_bins)
    parts = ((inside, BLUE, "in distribution"), (outside, ORANGE, "out of distribution"))
    for scores, colour, name in parts:
        counts, _ = np.histogram(scores.clip(edges[0], edges[-1]), edges)
        style: Style = {"color": colour, "alpha": 0.55, "label": name}
        ax.stairs(counts / len(scores), edges, fill=True, **style)
    title = f"AUROC {detection['auroc']:.3f}, FPR95 {detection['fpr95']:.3f}"
    ax.legend(frameon=False, title=title, alignment="left")
    return ax


def ood_comparison(
    comparison: Comparison, *, metric: str = "auroc", ax: Axes | None = None
) -> Axes:
    """A row of points for each score of `ood.compare`, one point for each data set, best on top.

    Args:
        comparison: as `ood.compare` returns it.
        metric: "auroc", "aupr" or "fpr95".
        ax: where to draw.
    """
    check_choice("metric", metric, DETECTION)
    order = sorted(
        comparison.metrics,
        key=lambda score: comparison.mean(score, metric),
        reverse=metric == "fpr95",
    )
    ax = make_axes(ax, metric.upper(), "")
    rows = range(len(order))
    ax.hlines(rows, 0, 1, color=PALE, linewidth=1, zorder=0)
    names = list(comparison.metrics[order[0]])
    for index, name in enumerate(names):
        values = [comparison.metrics[score][name][metric] for score in order]
        style: Style = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % 4]}
        ax.plot(values, rows, linestyle="none", label=name, **style)
    lowest = min(comparison.metrics[score][name][metric] for score in order for name in names)
    ax.set_xlim(max(lowest - 0.05, 0), 1.01)
    ax.set_yticks(rows, order)
    legend_above(ax)
    return ax


def _needed(target: Tensor | None) -> Tensor:
    if target is None:
        raise ValueError("a predictive needs its target; pass both")
    return target
