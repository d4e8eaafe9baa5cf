"""Temperature scaling of a trained network by held-out data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from lastlayer.calibration import Calibrated, TemperatureScaling

from .posttrained_vbll import Derived


@dataclass(frozen=True, kw_only=True)
class HeldOutTemperature(Derived):
    """A trained network, at the temperature with the lowest NLL of held-out data."""

    label = "DNN + temperature"

    def finish(self, model: nn.Module, task: Any) -> nn.Module:
        """The network with its temperature."""
        scaling = TemperatureScaling().fit(model.eval(), task.held_out, progress=False)
        return Calibrated(model, scaling)

    def remarks(self, model: nn.Module) -> dict[str, Any]:
        """The temperature."""
        assert isinstance(model, Calibrated)
        assert isinstance(model.scaling, TemperatureScaling)
        return {"temperature": model.scaling.temperature.item()}
