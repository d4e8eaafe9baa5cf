"""Dropout: units are dropped in prediction too, which gives a mixture (Gal & Ghahramani, 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

import lastlayer as ll

from ..backbones import mlp
from ..datasets.uci import Split
from ..method import Method


@dataclass(frozen=True, kw_only=True)
class Dropout(Method):
    """All knobs but the network are ours; the paper took these figures from elsewhere."""

    label = "Dropout"
    single_pass = False

    rate: float = 0.05  # the middle of those that Gal & Ghahramani search
    num_prediction_samples: int = 50
    patience: int | None = 500
    scale_targets: bool = True

    def make(self, split: Split) -> DropoutNetwork:
        """The network with dropout before every layer but the first."""
        network = mlp.regressor(split.num_inputs)
        for at in (4, 2):  # from the end: the places move
            network.insert(at, AlwaysDropout(self.rate))
        return DropoutNetwork(network, self.num_prediction_samples)


class AlwaysDropout(nn.Module):
    """Drops units in training and in evaluation mode alike."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, features: Tensor) -> Tensor:
        """Features, of which some are zero and the others larger."""
        return F.dropout(features, self.rate, training=True)


class DropoutNetwork(mlp.GaussianNetwork):
    """Predicts an equal mixture over draws of what is dropped."""

    def __init__(self, network: nn.Sequential, num_prediction_samples: int) -> None:
        super().__init__(network)
        self.num_prediction_samples = num_prediction_samples

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Tensor | ll.Predictive:
        """The predictive, or with a target the mean negative log-likelihood of one draw."""
        if target is not None:
            return super().forward(inputs, target)
        return self.mixture(inputs, self.num_prediction_samples)
