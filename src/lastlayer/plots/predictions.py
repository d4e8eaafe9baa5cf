"""Predictions over one or two inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from torch import Tensor

from .._checks import check_target
from .._streaming import frozen
from ..ood import feature_density as feature_score
from ..predictive import RegressionPredictive
from ._canvas import (
    AMBER,
    BLUE,
    GREEN,
    INK,
    NIGHT,
    ORANGE,
    PURPLE,
    SKY,
    Array,
    Style,
    as_array,
    legend_above,
    make_axes,
)

CLASS_COLOURS = (ORANGE, GREEN, PURPLE, AMBER, INK)  # none of those of a density


def predictive_band(
    inputs: Tensor,
    predictive: Any,
    data: tuple[Tensor, Tensor] | None = None,
    *,
    level: float = 0.95,
    output: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """The mean of a regression on one input, and bands of the weights alone and with the noise.

    Args:
        inputs: (B,) or (B, 1), in any order.
        predictive: of these inputs.
        data: inputs and targets to show as points, (T,) or (T, 1), and (T,) or (T, K).
        level: the probability of the bands.
        output: which output to draw.
        ax: where to draw.
    """
    predictive = RegressionPredictive.check(predictive, "draw classes by reliability_diagram")
    ax = make_axes(ax, "x", "y")
    x = _one_input(inputs)
    order = x.argsort()
    x, mean = x[order], as_array(predictive.mean)[order, output]
    low, high = (as_array(end)[order, output] for end in predictive.interval(level))
    score = torch.special.ndtri(torch.tensor(0.5 + level / 2, dtype=torch.float64)).item()
    weights = score * np.sqrt(as_array(predictive.epistemic_variance)[order, output])
    style: Style = {"color": BLUE, "lw": 0}
    percent = f"{100 * level:g} %"
    ax.fill_between(x, low, high, alpha=0.15, label=f"{percent}, with noise", **style)
    name = f"{percent}, weights alone"
    ax.fill_between(x, mean - weights, mean + weights, alpha=0.35, label=name, **style)
    ax.plot(x, mean, color=BLUE, label="mean")
    if data is not None:
        x = _one_input(data[0])
        y = as_array(check_target(data[1], torch.Size(x.shape), predictive.mean.shape[-1]))
        points = f"{len(x)} points"
        ax.plot(x, y[:, output], "o", color=INK, markersize=3, alpha=0.7, label=points, zorder=3)
    legend_above(ax)
    return ax


def _one_input(inputs: Tensor) -> Array:
    if inputs.ndim == 2 and inputs.shape[-1] == 1:
        inputs = inputs.squeeze(-1)
    if inputs.ndim != 1:
        raise ValueError(f"a band needs one input, (B,) or (B, 1), got {tuple(inputs.shape)}")
    return as_array(inputs)


@torch.no_grad()
def feature_density(
    model: Callable[[Tensor], Any],
    inputs: Tensor,
    target: Tensor | None = None,
    *,
    depth: float = 30.0,
    margin: float = 0.4,
    resolution: int = 150,
    ax: Axes | None = None,
) -> Axes:
    """A map of the log-density of the features over two inputs, with the data.

    Args:
        model: from inputs (G, 2) to a predictive with a `log_density`, or to log-densities (G,).
        inputs: the data, (T, 2); the map extends beyond it.
        target: class indices, (T,), for colours.
        depth: how many nats below the densest point the map ends; what is lower looks the same.
        margin: how far beyond the data, as a share of its extent.
        resolution: points along each side.
        ax: where to draw.
    """
    if inputs.ndim != 2 or inputs.shape[-1] != 2:
        raise ValueError(f"a map needs inputs of shape (T, 2), got {tuple(inputs.shape)}")
    points = as_array(inputs)
    low, high = points.min(0), points.max(0)
    beyond = margin * (high - low)
    across, up = np.linspace(low - beyond, high + beyond, resolution).T
    plane = torch.from_numpy(np.stack(np.meshgrid(across, up), -1).reshape(-1, 2)).to(inputs)
    with frozen(model):
        result = model(plane)
    density = as_array(result if isinstance(result, Tensor) else -feature_score(result))
    below = np.maximum(density - density.max(), -depth).reshape(resolution, resolution)
    ax = make_axes(ax, "x₁", "x₂")
    colours = LinearSegmentedColormap.from_list("density", ["white", SKY, BLUE, NIGHT])
    filled = ax.contourf(across, up, below, np.linspace(-depth, 0, 16), cmap=colours, alpha=0.8)
    labels = np.zeros(len(points), int) if target is None else target.cpu().numpy()
    for label in np.unique(labels):
        x, y = points[labels == label].T
        style: Style = {"color": CLASS_COLOURS[label % len(CLASS_COLOURS)], "edgecolor": "white"}
        ax.scatter(x, y, s=14, linewidth=0.4, label=f"y = {label}", **style)
    if target is not None:
        legend_above(ax)
    ax.figure.colorbar(filled, ax=ax, label="log p(φ(x)), nats from the peak")
    return ax
