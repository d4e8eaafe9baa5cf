"""VBLL: a variational Bayesian last layer, trained with the network (paper, theorem 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

import lastlayer as ll

from ..harness.task import Supervised
from .fitted import Fitted


@dataclass(frozen=True, kw_only=True)
class LastLayer(Fitted):
    """A network with the head of its likelihood, whose prior is the paper's by default."""

    label: ClassVar[str] = "last layer"

    prior_variance: float = 1.0  # paper, appendix D: N(0, I) and inverse-Wishart(1, 1)
    noise_dof: float = 1.0
    noise_scale: float = 1.0
    kl_weight: float = 1.0  # of the last layer's divergence, paper, appendix D
    bias: bool = False  # the paper has none

    @property
    def prior(self) -> ll.Prior:
        """The prior of weights and noise."""
        return ll.Prior(self.prior_variance, self.noise_dof, self.noise_scale, self.kl_weight)

    def make(self, task: Supervised) -> nn.Module:
        """The network with the head."""
        return ll.Network(task.backbone(), self.head(task))

    def head(self, task: Supervised, **options: Any) -> ll.Head:
        """The last layer."""
        options = {"prior": self.prior, "bias": self.bias, **options}
        return task.likelihood.head(task.num_features, num_data=task.num_data, **options)


@dataclass(frozen=True, kw_only=True)
class VBLL(LastLayer):
    """A variational Bayesian last layer with the paper's settings."""

    label = "VBLL"

    start_scale: float = 1.0  # of initial weights; not in the paper, see decision 10

    def head(self, task: Supervised, **options: Any) -> ll.Head:
        """The last layer, with larger initial weights than those of `Regression.initialize`."""
        return super().head(task, **options | {"initial_scale": self.start_scale})
