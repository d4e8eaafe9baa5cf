"""Calibration after training: a temperature, factors on variances, or tails, from held-out data.

    scaling = TemperatureScaling().fit(model, held_out)
    model = Calibrated(model, scaling)  # model(x) predicts as before

A scaling maps predictives to predictives, changes no weight of the model, and is a module with a
buffer or two: saved and moved like any other.
"""

from typing import Any

from torch import nn

from .._streaming import predictions
from ..predictive import Predictive
from ._base import Scaling
from .tails import TailScaling
from .temperature import TemperatureScaling
from .variance import VarianceScaling

__all__ = [
    "Calibrated",
    "Scaling",
    "TailScaling",
    "TemperatureScaling",
    "VarianceScaling",
    "default_scaling",
    "predictions",
]


def default_scaling(predictive: Any) -> Scaling:
    """A new scaling of the kind that a predictive names first among its `scalings`."""
    names = Predictive.check(predictive).scalings
    kinds = {kind.__name__: kind for kind in (TailScaling, TemperatureScaling, VarianceScaling)}
    if not names or names[0] not in kinds:
        raise TypeError(
            f"{type(predictive).__name__} names none of {', '.join(kinds)} first in its scalings, "
            f"got {names}; pass a scaling"
        )
    return kinds[names[0]].like(predictive)


class Calibrated(nn.Module):
    """A model whose predictives go through a fitted scaling: `model(x)` as before.

    Args:
        model: whatever returns a predictive.
        scaling: one of this module, or any other map of predictives.
    """

    def __init__(self, model: nn.Module, scaling: nn.Module) -> None:
        super().__init__()
        self.model, self.scaling = model, scaling

    def forward(self, inputs: Any) -> Any:
        """The scaled predictive."""
        return self.scaling(self.model(inputs))
