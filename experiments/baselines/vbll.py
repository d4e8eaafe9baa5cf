"""VBLL: a variational Bayesian last layer, trained with the network (paper, theorem 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

import lastlayer as ll

from ..backbones import mlp
from ..datasets.uci import Split
from ..method import Method


@dataclass(frozen=True, kw_only=True)
class VBLL(Method):
    """The paper's model and settings."""

    label = "VBLL"

    prior_variance: float = 1.0  # paper, appendix D: N(0, I) and inverse-Wishart(1, 1)
    noise_dof: float = 1.0
    noise_scale: float = 1.0
    bias: bool = False  # the paper has none

    def make(self, split: Split) -> nn.Module:
        """The network with a regression head."""
        return ll.Network(mlp.features(split.num_inputs), self.head(split))

    def head(self, split: Split, **options: Any) -> ll.Regression:
        """The last layer."""
        prior = ll.Prior(self.prior_variance, self.noise_dof, self.noise_scale)
        options |= {"prior": prior, "bias": self.bias}
        return ll.Regression(mlp.WIDTH, num_data=split.num_data, **options)
