"""SWAG: a Gaussian from the weights that SGD passes through (Maddox et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

import lastlayer as ll

from ..harness.task import Supervised
from .fitted import Fitted
from .plain import PlainNetwork, mixed


@dataclass(frozen=True, kw_only=True)
class SWAG(Fitted):
    """Trains as MAP does, then collects weights while plain SGD goes on."""

    label = "SWAG"
    single_pass = False

    num_snapshots: int = 20  # Maddox et al.: of the deviations, one each epoch
    collecting_rate: float = 1e-2  # of SGD while collecting; not in the paper
    num_prediction_samples: int = 30  # Maddox et al.
    patience: int | None = 500  # not in the paper
    scale_targets: bool = True  # not in the paper, whose figures are from elsewhere

    def make(self, task: Supervised) -> PlainNetwork:
        """The network with a linear last layer."""
        return PlainNetwork.of(task)

    def fit(
        self, models: list[nn.Module], tasks: Sequence[Supervised], checkpoint: Path | None
    ) -> list[dict[str, Any]]:
        """Train, and then replace each model by the draws of its Gaussian."""
        notes = super().fit(models, tasks, checkpoint)
        data = [task.development for task in tasks]
        options: dict[str, Any] = {"learning_rate": self.collecting_rate, "schedule": "constant"}
        options |= {"epochs": 1, "optimizer": torch.optim.SGD}
        paths: list[list[dict[str, Tensor]]] = [[] for _ in tasks]
        for epoch in range(self.num_snapshots):
            seeds = [1000 * task.seed + epoch for task in tasks]
            self.optimise(models, data, seeds, None, **options)
            for snapshots, model in zip(paths, models, strict=True):
                weights = {name: w.detach().clone() for name, w in model.named_parameters()}
                snapshots.append(weights)
        for at, task in enumerate(tasks):
            generator = torch.Generator().manual_seed(task.seed)
            path = {name: torch.stack([s[name] for s in paths[at]]) for name in paths[at][0]}
            drawn = draws(path, self.num_prediction_samples, generator)
            models[at] = WeightDraws(models[at], drawn)
        return notes


def draws(path: dict[str, Tensor], count: int, generator: torch.Generator) -> dict[str, Tensor]:
    r"""Draws of SWAG's Gaussian, $N(\bar\theta, \tfrac12\Sigma_{diag} + \tfrac1{2(K-1)} DD^\top)$.

    Args:
        path: K snapshots of each weight, (K, *shape).
        count: S, how many draws.
        generator: of the random numbers.

    Returns:
        (S, *shape) of each weight.
    """
    num_snapshots = len(next(iter(path.values())))
    shared = torch.randn(count, num_snapshots, generator=generator)  # the same for all weights
    found = {}
    for name, weights in path.items():
        mean, variance = weights.mean(0), weights.var(0, correction=0)
        own = torch.randn(count, *mean.shape, generator=generator)
        deviations = torch.tensordot(shared, weights - mean, 1) / (2 * (num_snapshots - 1)) ** 0.5
        found[name] = mean + (0.5 * variance).sqrt() * own + deviations
    return found


class WeightDraws(nn.Module):
    """The equal mixture of a model's predictives over draws of its weights.

    Args:
        model: whose weights are replaced.
        weights: by name, (S, *shape) each.
    """

    def __init__(self, model: nn.Module, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.model, self.weights = model, weights

    def forward(self, inputs: Tensor) -> ll.Predictive:
        """The mixture."""
        count = len(next(iter(self.weights.values())))
        each = ({name: w[at] for name, w in self.weights.items()} for at in range(count))
        return mixed([functional_call(self.model, weights, (inputs,)) for weights in each])
