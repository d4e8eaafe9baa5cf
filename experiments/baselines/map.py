"""MAP: a network trained as usual, then a Bayesian last layer on its fixed features."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

import lastlayer as ll

from ..harness.task import Supervised
from .deterministic import Deterministic
from .plain import PlainNetwork


@dataclass(frozen=True, kw_only=True)
class MAP(Deterministic):
    """A network trained as usual, then a Bayesian last layer; weight decay is the prior."""

    label = "MAP"

    patience: int | None = 500  # not in the paper; saves time
    scale_targets: bool = True  # not in the paper, whose figures are from elsewhere

    def finish(self, model: nn.Module, task: Supervised) -> ll.Network:
        """The last layer made Bayesian, given training and validation data."""
        assert isinstance(model, PlainNetwork)
        assert isinstance(model.network, nn.Sequential)
        return task.likelihood.posttrained(model.network, model.output, task.development)
