"""Networks with a linear last layer and a likelihood, and mixtures of their predictives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import lastlayer as ll

from ..harness.likelihood import Output
from ..harness.task import Supervised

AnyNetwork = TypeVar("AnyNetwork", bound="PlainNetwork")


def linear_network(task: Supervised, output: Output) -> nn.Sequential:
    """The task's backbone, and a linear layer with as many outputs as are asked for."""
    return nn.Sequential(task.backbone(), nn.Linear(task.num_features, output.num_outputs))


class PlainNetwork(nn.Module):
    """A network and what makes predictives of its outputs.

    Args:
        network: from inputs to outputs, (*batch, num_outputs).
        output: from outputs to predictives.
    """

    def __init__(self, network: nn.Module, output: Output) -> None:
        super().__init__()
        self.output = output
        self.network = network

    @classmethod
    def of(cls: type[AnyNetwork], task: Supervised, **options: Any) -> AnyNetwork:
        """The network of a task with the output of its likelihood."""
        output = task.likelihood.output()
        return cls(linear_network(task, output), output, **options)

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Any:
        """The predictive, or with a target the mean negative log-likelihood."""
        predictive = self.output(self.network(inputs))
        return predictive if target is None else nll(predictive, target)


class RandomNetwork(PlainNetwork):
    """A network whose passes are random: it predicts an equal mixture over some of them.

    Args:
        network: from inputs to outputs, (*batch, num_outputs).
        output: from outputs to predictives.
        num_prediction_samples: how many passes.
    """

    def __init__(self, network: nn.Module, output: Output, num_prediction_samples: int) -> None:
        super().__init__(network, output)
        self.num_prediction_samples = num_prediction_samples

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Any:
        """The mixture, or with a target the loss of one pass."""
        if target is not None:
            return super().forward(inputs, target)
        return ll.predictive.mix(self.output(self.passes(inputs)))

    def passes(self, inputs: Tensor) -> Tensor:
        """Outputs of all passes, independent between examples, (B, S, num_outputs)."""
        repeated = inputs.unsqueeze(1).expand(-1, self.num_prediction_samples, *inputs.shape[1:])
        return self.network(repeated.flatten(0, 1)).unflatten(0, repeated.shape[:2])


def nll(predictive: Any, target: Tensor) -> Tensor:
    """The mean negative log-likelihood, ()."""
    return -predictive.log_prob(target).mean()


def mixed(predictives: Sequence[Any]) -> Any:
    """The equal mixture of the predictives of several models for the same inputs."""
    place = len(predictives[0].batch_shape)
    stacked = pytree.tree_map(lambda *parts: torch.stack(parts, place), *predictives)
    return ll.predictive.mix(stacked)
