"""Colours and lines of the paper's figures."""

from __future__ import annotations

from typing import Any

from matplotlib.colors import LinearSegmentedColormap

from lastlayer.plots._canvas import AMBER, NIGHT
from lastlayer.plots._canvas import BLUE as DEEP_BLUE
from lastlayer.plots._canvas import ORANGE as DEEP_ORANGE
from lastlayer.plots._canvas import SKY as DEEP_SKY

# From small to large, also for colour-blind eyes.
RAMP = LinearSegmentedColormap.from_list("sweep", [NIGHT, DEEP_BLUE, DEEP_SKY, AMBER, DEEP_ORANGE])

INK, GREY, BLUE, SKY, PALE = "#22272e", "#7d8590", "#2463a8", "#b9d0e8", "#e3ecf5"
ORANGE = "#c8701a"
STYLE: dict[Any, Any] = {"font.size": 11, "text.color": INK, "axes.edgecolor": GREY}
STYLE |= {"contour.linewidth": 0.8}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False}
STYLE |= {"axes.titlelocation": "left", "axes.titleweight": "bold", "axes.titlesize": 12}
