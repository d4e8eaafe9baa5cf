"""A backbone with a Bayesian last layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .heads import Elbo, Head


class Network(nn.Module):
    """A network whose last layer is a head: `model(x)` predicts, `model(x, y)` is the loss.

    Args:
        backbone: any module from inputs to features, (*batch, num_features).
        head: the last layer.
    """

    def __init__(self, backbone: nn.Module, head: Head) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(
        self, inputs: Any, target: Tensor | None = None, weight: Tensor | None = None
    ) -> Any:
        """Return the predictive, or with a target the training loss; see `Head.forward`."""
        return self.head(self.backbone(inputs), target, weight)

    def elbo(self, inputs: Any, target: Tensor, weight: Tensor | None = None) -> Elbo:
        """The parts of the objective, for logging."""
        return self.head.elbo(self.backbone(inputs), target, weight)
