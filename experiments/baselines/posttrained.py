"""Post-training by default: a network trained as usual, then `lastlayer.posttrain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

import lastlayer as ll

from ..harness.task import Supervised
from .default import head_remark
from .deterministic import Deterministic
from .plain import PlainNetwork


@dataclass(frozen=True, kw_only=True)
class Posttrained(Deterministic):
    """A network trained as usual, then a head by `posttrain`, whose options are its defaults."""

    label = "`posttrain`"
    trained_as = Deterministic

    head: str = "discriminative"

    def finish(self, model: nn.Module, task: Supervised) -> ll.Network:
        """The last layer made Bayesian on the training data."""
        assert isinstance(model, PlainNetwork)
        return ll.posttrain(model.network, task.train, self.head, progress=False)

    def remarks(self, model: nn.Module) -> dict[str, Any]:
        """Which head it was: defaults may be others in another version."""
        return head_remark(model)
