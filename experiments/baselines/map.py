"""MAP: a network trained as usual, then a Bayesian last layer on its fixed features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
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

    @torch.no_grad()
    def finish(self, model: nn.Module, split: Split) -> ll.Network:
        """Solve the last layer in closed form, at the noise that was learned with the features.

        Noise that is estimated anew, from features that have been fitted to the same data, is too
        small by far. The prior variance is the mean square of the trained weights.
        """
        assert isinstance(model, mlp.GaussianNetwork)
        *features, layer = model.network
        assert isinstance(layer, nn.Linear)
        inputs, target = split.development
        prior = ll.Prior(variance=float(layer.weight.square().mean()))
        head = ll.Regression(mlp.WIDTH, num_data=len(inputs), prior=prior, bias=True)
        head.noise.set_isotropic(float((2 * model.log_stddev).exp()))
        network = ll.Network(nn.Sequential(*features), head)
        head.fit_exact(network.backbone(inputs), target)
        return network
