"""Ours for images: a network trained with a Bayesian last layer, then `posttrain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

import lastlayer as ll

from ..backbones.small import Scale
from ..harness.task import Supervised
from .calibrated_posttrained import calibrated, calibration_remarks
from .discriminative import DiscriminativeVBLL


@dataclass(frozen=True, kw_only=True)
class CalibratedVBLL(DiscriminativeVBLL):
    """D-VBLL on larger features, then `posttrain`, whose prior held-out data choose.

    They also say whether a temperature helps; the score is GEN, at no temperature.
    """

    label = "Ours"

    feature_scale: float = 1.0  # by which features are multiplied

    def make(self, task: Supervised) -> nn.Module:
        """The network with the head."""
        backbone = nn.Sequential(task.backbone(), Scale(self.feature_scale))
        return ll.Network(backbone, self.head(task))

    def finish(self, model: nn.Module, task: Any) -> nn.Module:
        """The network with a posterior anew, its temperature and its score."""
        assert isinstance(model, ll.Network)
        return calibrated(nn.Sequential(model.backbone, mean_layer(model.head)), task)

    def remarks(self, model: nn.Module) -> dict[str, Any]:
        """The head, its prior and the temperature."""
        return calibration_remarks(model)


def mean_layer(head: ll.Head) -> nn.Linear:
    """A linear layer of the means of a head's weights."""
    found = head.logit_layer
    assert found is not None
    weight, bias = found
    layer = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device, dtype=weight.dtype)
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer
