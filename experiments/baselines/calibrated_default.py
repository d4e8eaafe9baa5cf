"""Ours for images: the default head, its temperature by held-out data, and a density as score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.calibration import TemperatureScaling

from .default import DefaultHead, head_remark
from .scored import ScoredNetwork


@dataclass(frozen=True, kw_only=True)
class CalibratedDefault(DefaultHead):
    """The default head by `fit`, calibrated on held-out data; the score is `FeatureDensity`."""

    label = "Ours"
    trained_as = DefaultHead

    def finish(self, model: nn.Module, task: Any) -> nn.Module:
        """The network with its temperature and its score."""
        assert isinstance(model, ll.Network)
        scaling = TemperatureScaling().fit(model.eval(), task.held_out, progress=False)
        density = ll.ood.FeatureDensity.from_model(model, task.train, progress=False)

        def score(features: Tensor, _: Any) -> Tensor:
            with torch.no_grad():
                found: Tensor = density(features)
            return found

        return ScoredNetwork(model, score, scaling)

    def remarks(self, model: nn.Module) -> dict[str, Any]:
        """The head and the temperature."""
        assert isinstance(model, ScoredNetwork)
        assert isinstance(model.scaling, TemperatureScaling)
        return head_remark(model.network) | {"temperature": model.scaling.temperature.item()}
