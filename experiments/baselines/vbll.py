"""VBLL: a variational Bayesian last layer, trained with the network (paper, theorem 1)."""

from __future__ import annotations

from dataclasses import dataclass

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

    def make(self, split: Split) -> ll.Network:
        """The network with a regression head."""
        prior = ll.Prior(self.prior_variance, self.noise_dof, self.noise_scale)
        head = ll.Regression(mlp.WIDTH, num_data=split.num_data, prior=prior, bias=self.bias)
        return ll.Network(mlp.features(split.num_inputs), head)
