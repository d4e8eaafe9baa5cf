"""Calibration after training: a temperature, factors on variances, or tails, from held-out data.

    scaling = TemperatureScaling().fit(model, held_out)
    model = Calibrated(model, scaling)  # model(x) predicts as before

A scaling maps predictives to predictives, changes no weight of the model, and is a module with a
buffer or two: saved and moved like any other.
"""

from typing import Any

from torch import nn

from .._streaming import predictions
from .tails import TailScaling
from .temperature import TemperatureScaling
from .variance import VarianceScaling

__all__ = ["Calibrated", "TailScaling", "TemperatureScaling", "VarianceScaling", "predictions"]


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
