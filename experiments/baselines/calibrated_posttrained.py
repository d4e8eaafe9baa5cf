"""`posttrain` with held-out data, a temperature if it helps, and the generalised entropy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.calibration import TemperatureScaling
from lastlayer.posttraining import Features, cache_features

from .default import head_remark
from .plain import PlainNetwork
from .posttrained_vbll import Derived
from .scored import ScoredNetwork


@dataclass(frozen=True, kw_only=True)
class CalibratedPosttrained(Derived):
    """A trained network after `posttrain`, whose prior held-out data choose.

    They also say whether a temperature helps; the score is GEN, at no temperature.
    """

    label = "DNN + `posttrain`"

    def finish(self, model: nn.Module, task: Any) -> nn.Module:
        """The network with its posterior, its temperature and its score."""
        assert isinstance(model, PlainNetwork)
        return calibrated(model.network, task)

    def remarks(self, model: nn.Module) -> dict[str, Any]:
        """The head, its prior and the temperature."""
        return calibration_remarks(model)


def calibrated(network: nn.Module, task: Any) -> ScoredNetwork:
    """A network that ends in a linear layer, after `posttrain` with the task's held-out data."""
    fitted = ll.posttrain(network, task.train, validation=task.held_out, progress=False)
    held_out = cache_features(fitted.backbone, task.held_out, progress=False)
    scaling = helpful_temperature(fitted.head, held_out)
    return ScoredNetwork(fitted, generalized_entropy, scaling)


def calibration_remarks(model: nn.Module) -> dict[str, Any]:
    """The head, its prior and the temperature."""
    assert isinstance(model, ScoredNetwork)
    assert isinstance(model.scaling, TemperatureScaling)
    return head_remark(model.network) | {"temperature": model.scaling.temperature.item()}


def generalized_entropy(_: Tensor, predictive: Any) -> Tensor:
    """The score, (*batch,), of a predictive."""
    return ll.ood.generalized_entropy(predictive)


@torch.no_grad()
def helpful_temperature(head: Callable[[Tensor], Any], data: Features) -> TemperatureScaling:
    """The best temperature of held-out data, or one, unless each half says so of the other.

    That of one half must lower the NLL of the other by more than its standard error, on average
    over both: else it would be the luck of a split.
    """
    features, target, _ = data
    first = torch.arange(len(target)) % 2 == 0  # the data are in random order
    gains = []
    for half in (first, ~first):
        scaling = TemperatureScaling().fit(head, (features[half], target[half]), progress=False)
        other, label = head(features[~half]), target[~half]
        gains.append(scaling(other).log_prob(label) - other.log_prob(label))
    gain = torch.cat(gains).double()
    if float(gain.mean()) <= float(gain.std()) / len(gain) ** 0.5:
        return TemperatureScaling()
    return TemperatureScaling().fit(head, (features, target), progress=False)
