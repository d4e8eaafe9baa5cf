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
    """A network with a regression head, whose prior is the paper's by default."""

    prior_variance: float = 1.0  # paper, appendix D: N(0, I) and inverse-Wishart(1, 1)
    noise_dof: float = 1.0
    noise_scale: float = 1.0
    bias: bool = False  # the paper has none

    def make(self, split: Split) -> nn.Module:
        """The network with the head."""
        return ll.Network(mlp.features(split.num_inputs), self.head(split))

    def head(
        self, split: Split, kind: type[ll.Regression] = ll.Regression, **options: Any
    ) -> ll.Regression:
        """The last layer."""
        prior = ll.Prior(self.prior_variance, self.noise_dof, self.noise_scale)
        options |= {"prior": prior, "bias": self.bias}
        return kind(mlp.WIDTH, num_data=split.num_data, **options)


class StartScaled(ll.Regression):
    r"""Regression with first weights of a given size.

    Args:
        num_features: N, the width of the features.
        start_scale: standard deviation of the weights, in root mean squares of the targets over
            $\sqrt{N}$.
        options: of `Regression`.
    """

    def __init__(self, num_features: int, *, start_scale: float, **options: Any) -> None:
        super().__init__(num_features, **options)
        self.start_scale = start_scale

    @torch.no_grad()
    def initialize_scale(self, mean_square: Tensor) -> None:
        """Start with noise and weights at the scale of the targets."""
        super().initialize_scale(mean_square)
        stddev = self.start_scale * (mean_square / self.width).sqrt()
        self.mean.normal_().mul_(stddev.unsqueeze(-1))


@dataclass(frozen=True, kw_only=True)
class VBLL(LastLayer):
    """The paper's model and settings."""

    label = "VBLL"

    start_scale: float = 1.0  # not in the paper; chosen on held-out data, see decision 10

    def head(
        self, split: Split, kind: type[ll.Regression] = StartScaled, **options: Any
    ) -> ll.Regression:
        """The last layer, whose first weights are larger than `Regression.initialize` has them."""
        return super().head(split, kind, **options | {"start_scale": self.start_scale})
