"""Ensemble: networks with different initial values (Lakshminarayanan et al., 2017)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..harness.task import Supervised
from .fitted import Fitted
from .plain import PlainNetwork, linear_network, mixed


@dataclass(frozen=True, kw_only=True)
class Ensemble(Fitted):
    """Deep ensemble, mixed equally; members of regression predict a variance for each input."""

    label = "Ensemble"
    single_pass = False

    num_members: int = 5  # Lakshminarayanan et al.
    min_variance: float = 1e-6  # Lakshminarayanan et al.
    patience: int | None = 300  # not in the paper
    scale_targets: bool = True  # not in the paper; as Lakshminarayanan et al. do

    def make(self, task: Supervised) -> EnsembleNetwork:
        """All members, as one module."""
        outputs = [task.likelihood.output(self.min_variance) for _ in range(self.num_members)]
        return EnsembleNetwork(PlainNetwork(linear_network(task, each), each) for each in outputs)


class EnsembleNetwork(nn.Module):
    """Models that see the same batches and share no weights.

    Args:
        members: models with the two calls.
    """

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Any:
        """The mixture, or with a target the sum of the members' losses."""
        if target is None:
            return mixed([member(inputs) for member in self.members])
        losses = [member(inputs, target) for member in self.members]
        return sum(losses[1:], losses[0])
