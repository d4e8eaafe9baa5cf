"""MAP: a network trained as usual, then a Bayesian last layer on its fixed features."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

import lastlayer as ll

from ..backbones import mlp
from ..datasets.uci import Split
from ..method import Method


@dataclass(frozen=True, kw_only=True)
class MAP(Method):
    """The likelihood is Gaussian with a learned noise variance; weight decay is the prior."""

    label = "MAP"

    patience: int | None = 500  # not in the paper; saves time
    scale_targets: bool = True  # not in the paper, whose figures are from elsewhere

    def make(self, split: Split) -> mlp.GaussianNetwork:
        """The network with a linear last layer."""
        return mlp.GaussianNetwork(mlp.regressor(split.num_inputs))

    def finish(self, model: nn.Module, split: Split) -> ll.Network:
        """Solve last layer and noise in closed form, with the default prior of `posttrain`."""
        assert isinstance(model, mlp.GaussianNetwork)
        return ll.posttrain(model.network, split.development, "regression", progress=False)
