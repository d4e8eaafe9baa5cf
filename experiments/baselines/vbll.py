"""VBLL: a variational Bayesian last layer, trained with the network (paper, theorem 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import lastlayer as ll

from ..backbones import mlp
from ..datasets.uci import Split
from ..method import Method


@dataclass(frozen=True, kw_only=True)
class LastLayer(Method):
    """A network with a regression head that has the paper's prior."""

    prior_variance: float = 1.0  # paper, appendix D: N(0, I) and inverse-Wishart(1, 1)
    noise_dof: float = 1.0
    noise_scale: float = 1.0
    bias: bool = False  # the paper has none

    def make(self, split: Split) -> nn.Module:
        """The network with the head."""
        return ll.Network(mlp.features(split.num_inputs), self.head(split))

    def head(self, split: Split, **options: Any) -> ll.Regression:
        """The last layer."""
        return ll.Regression(mlp.WIDTH, **self.head_options(split) | options)

    def head_options(self, split: Split) -> dict[str, Any]:
        """The number of examples, the prior, and whether there is a constant feature."""
        prior = ll.Prior(self.prior_variance, self.noise_dof, self.noise_scale)
        return {"num_data": split.num_data, "prior": prior, "bias": self.bias}


@dataclass(frozen=True, kw_only=True)
class VBLL(LastLayer):
    """The paper's model and settings."""

    label = "VBLL"

    start_scale: float = 1.0  # the paper does not say; chosen on validation data, decision 10

    def head(self, split: Split, **options: Any) -> ll.Regression:
        """The last layer, with another start."""
        return StartScaled(self.start_scale, mlp.WIDTH, **self.head_options(split) | options)


class StartScaled(ll.Regression):
    r"""Regression whose first weights are drawn at the scale of the targets, over $\sqrt{N}$.

    Args:
        start_scale: of the weights, in the root mean square of the targets.
        num_features: N, the width of the features.
        options: of `Regression`.
    """

    def __init__(self, start_scale: float, num_features: int, **options: Any) -> None:
        super().__init__(num_features, **options)
        self.start_scale = start_scale

    @torch.no_grad()
    def initialize_scale(self, mean_square: Tensor) -> None:
        """Start at the scale of the targets, the first predictions too."""
        super().initialize_scale(mean_square)
        stddev = self.start_scale * (mean_square / self.width).sqrt()
        self.mean.normal_().mul_(stddev.unsqueeze(-1))
