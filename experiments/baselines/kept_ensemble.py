"""An ensemble of networks that other seeds have trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ..harness.method import Solved
from ..harness.task import Supervised
from .deterministic import Deterministic
from .ensemble import EnsembleNetwork


@dataclass(frozen=True, kw_only=True)
class KeptEnsemble(Deterministic):
    """An equal mixture of the networks of consecutive seeds, of which neighbours share some."""

    label = "Ensemble"
    single_pass = False
    trained_as = Deterministic

    num_members: int = 4

    def train(self, tasks: Sequence[Supervised], checkpoint: Path | None = None) -> Solved:
        """Train the members that are not kept, one after the other."""
        solved: Solved = []
        for task in tasks:
            members: list[nn.Module] = []
            for number in range(self.num_members):
                member = dataclasses.replace(task, seed=task.seed + number)
                folder = checkpoint and checkpoint / str(member.seed)
                members.append(super().train([member], folder)[0][0])
            solved.append((EnsembleNetwork(members).eval(), {"members": self.num_members}))
        return solved
