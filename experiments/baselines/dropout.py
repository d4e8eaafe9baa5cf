"""Dropout: units are dropped in prediction too, which gives a mixture (Gal & Ghahramani, 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..harness.task import Supervised
from .fitted import Fitted
from .plain import RandomNetwork

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True, kw_only=True)
class Dropout(Fitted):
    """Monte Carlo dropout before every layer but the first; the settings are ours."""

    label = "Dropout"
    single_pass = False

    rate: float = 0.05  # the middle of those that Gal & Ghahramani search
    num_prediction_samples: int = 50
    patience: int | None = 500
    scale_targets: bool = True

    def make(self, task: Supervised) -> RandomNetwork:
        """The network with dropout."""
        model = RandomNetwork.of(task, num_prediction_samples=self.num_prediction_samples)
        insert_dropout(model.network, self.rate)
        return model


class AlwaysDropout(nn.Module):
    """Drops units in training and in evaluation mode alike."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, features: Tensor) -> Tensor:
        """Features, of which some are zero and the others larger."""
        return F.dropout(features, self.rate, training=True)


def insert_dropout(network: nn.Module, rate: float) -> None:
    """Put dropout before every linear layer and convolution but the first, in place."""
    names = [name for name, layer in network.named_modules() if isinstance(layer, LAYERS)]
    for name in names[1:]:
        parent, _, child = name.rpartition(".")
        layer = network.get_submodule(name)
        setattr(network.get_submodule(parent), child, nn.Sequential(AlwaysDropout(rate), layer))
