"""Post-training by default: a network trained as usual, then `lastlayer.posttrain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

import lastlayer as ll

from ..harness.method import Solved
from ..harness.task import Supervised
from .default import described
from .deterministic import Deterministic
from .plain import PlainNetwork


@dataclass(frozen=True, kw_only=True)
class Posttrained(Deterministic):
    """A network trained as usual, then a head by `posttrain`, whose options are its defaults."""

    label = "`posttrain`"
    trained_as = Deterministic

    head: str = "discriminative"

    def train(self, tasks: Sequence[Supervised], checkpoint: Path | None = None) -> Solved:
        """Train, and note which head it was."""
        return described(super().train(tasks, checkpoint))

    def finish(self, model: nn.Module, task: Supervised) -> ll.Network:
        """The last layer made Bayesian on the training data."""
        assert isinstance(model, PlainNetwork)
        return ll.posttrain(model.network, task.train, self.head, progress=False)
