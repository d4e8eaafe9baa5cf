"""Shared by all plots: colours, axes, and tensors as arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

Array: TypeAlias = NDArray[np.float64]
Style: TypeAlias = dict[str, Any]

# After Okabe and Ito, whose colours differ for colour-blind eyes too.
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#aa4499"
AMBER, SKY, NIGHT = "#e69f00", "#56b4e9", "#00304d"
INK, GREY, PALE = "#22272e", "#7d8590", "#d8dee4"


def make_axes(ax: Axes | None, xlabel: str, ylabel: str) -> Axes:
    """Axes with labels and without a frame, of a new figure if none are given."""
    ax = Figure(figsize=(6, 4.2), dpi=120, layout="constrained").subplots() if ax is None else ax
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    return ax


def legend_above(ax: Axes, *others: Axes) -> None:
    """A legend of all that has a label, also on axes that share the place, clear of the data."""
    handles, labels = ax.get_legend_handles_labels()
    for other in others:
        more_handles, more_labels = other.get_legend_handles_labels()
        handles, labels = handles + more_handles, labels + more_labels
    if handles:
        place: Style = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 3}
        ax.legend(handles, labels, frameon=False, fontsize="small", **place)


def as_array(tensor: Tensor) -> Array:
    """A tensor of any device and dtype for matplotlib."""
    return tensor.detach().cpu().double().numpy()
