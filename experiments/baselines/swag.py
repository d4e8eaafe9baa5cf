"""SWAG: a Gaussian from the weights that SGD passes through (Maddox et al., 2019)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

import lastlayer as ll

from ..backbones import mlp
from ..datasets.uci import Split
from ..method import Method


@dataclass(frozen=True, kw_only=True)
class SWAG(Method):
    """Trains as MAP does, then collects weights while plain SGD goes on."""

    label = "SWAG"
    single_pass = False

    num_snapshots: int = 20  # Maddox et al.: of the deviations, one each epoch
    collecting_rate: float = 1e-2  # of SGD while collecting; not in the paper
    num_prediction_samples: int = 30  # Maddox et al.
    patience: int | None = 500  # not in the paper
    scale_targets: bool = True  # not in the paper, whose figures are from elsewhere

    def make(self, split: Split) -> mlp.GaussianNetwork:
        """The network with a linear last layer."""
        return mlp.GaussianNetwork(mlp.regressor(split.num_inputs))

    def fit(
        self, models: list[nn.Module], splits: Sequence[Split], checkpoint: Path | None
    ) -> list[dict[str, Any]]:
        """Train, and then replace each model by the draws of its Gaussian."""
        notes = super().fit(models, splits, checkpoint)
        snapshots = []
        for epoch in range(self.num_snapshots):
            moved = [replace(split, seed=1000 * split.seed + epoch) for split in splits]
            changes = {"epochs": 1, "learning_rate": self.collecting_rate, "schedule": "constant"}
            data = [split.development for split in splits]
            self.optimise(models, moved, data, None, optimizer=torch.optim.SGD, **changes)
            snapshots.append(_weights(models))
        stacked = {name: torch.stack([s[name] for s in snapshots], 1) for name in snapshots[0]}
        for at, (model, split) in enumerate(zip(models, splits, strict=True)):
            generator = torch.Generator().manual_seed(split.seed)
            path = {name: weights[at] for name, weights in stacked.items()}
            models[at] = WeightDraws(model, draws(path, self.num_prediction_samples, generator))
        return notes


def _weights(models: list[nn.Module]) -> dict[str, Tensor]:
    """The weights of all models, stacked."""
    return {name: w.detach().clone() for name, w in stack_module_state(models)[0].items()}


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
    """The equal mixture of a network's predictives over draws of its weights."""

    def __init__(self, network: nn.Module, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.network, self.weights = copy.deepcopy(network), weights

    def forward(self, inputs: Tensor) -> ll.Predictive:
        """The mixture."""
        predictive = vmap(lambda w: functional_call(self.network, w, (inputs,)))(self.weights)
        mean, *others = (t.movedim(0, -2) for t in predictive._tensors())  # (*batch, S, 1)
        return ll.predictive.mix(ll.GaussianPredictive(mean, *others))
