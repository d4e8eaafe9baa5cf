"""The loss of a model and its parts, from one call."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..heads._parts import recorded


class Objective(nn.Module):
    """The loss of a model and what to log of it, as one forward pass.

    Compilers, wrappers of several processes and `vmap` see one call that returns both.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of (inputs, target) or (inputs, target, weight), and detached scalars."""
        with recorded(self.model) as parts:
            loss = self.model(*batch)
        logged = {name: part.detach() for name, part in parts.items()}
        return loss, {"loss": loss.detach(), **logged}
