"""Plots of predictions, calibration, detection and training.

Every function draws on `ax`, or on the axes of a new figure, and returns the axes:

    ax = plots.reliability_diagram(model(x), y)
    ax.figure.savefig("reliability.png")

New figures are not registered with pyplot: nothing is shown, nothing needs closing, and no setting
changes. For a window pass an `ax` of `plt.subplots()`. Colours are told apart by everybody.
"""

try:
    import matplotlib as _matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError(
        "lastlayer.plots needs matplotlib; install it with: pip install 'lastlayer[plots]'"
    ) from error

from .predictions import feature_density, predictive_band
from .reliability import (
    calibration_curve,
    ood_comparison,
    ood_histogram,
    reliability_diagram,
)
from .training import training_curves

__all__ = [
    "calibration_curve",
    "feature_density",
    "ood_comparison",
    "ood_histogram",
    "predictive_band",
    "reliability_diagram",
    "training_curves",
]
