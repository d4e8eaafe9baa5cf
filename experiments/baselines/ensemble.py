"""Ensemble: networks from different starts, mixed equally (Lakshminarayanan et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lastlayer as ll

from ..backbones import mlp
from ..datasets.uci import Split
from ..method import AnyMethod, Method


@dataclass(frozen=True, kw_only=True)
class Ensemble(Method):
    """Members predict a mean and a variance for each input, as in the ensembles' own paper."""

    label = "Ensemble"
    single_pass = False

    num_members: int = 5  # Lakshminarayanan et al.
    min_variance: float = 1e-6  # Lakshminarayanan et al.
    patience: int | None = 300  # not in the paper
    scale_targets: bool = True  # not in the paper; as Lakshminarayanan et al. do

    @classmethod
    def for_dataset(cls: type[AnyMethod], dataset: str, **changes: Any) -> AnyMethod:
        """On the largest data as many epochs as time allows."""
        fewer = {"epochs": 1000} if dataset == "power" else {}
        return super().for_dataset(dataset, **fewer | changes)

    def make(self, split: Split) -> EnsembleNetwork:
        """All members, as one module."""
        return EnsembleNetwork(split.num_inputs, self.num_members, self.min_variance)


class EnsembleNetwork(nn.Module):
    """Members as one batched network; they see the same batches, and share no weights."""

    def __init__(self, num_inputs: int, num_members: int, min_variance: float) -> None:
        super().__init__()
        self.min_variance = min_variance
        members = [mlp.regressor(num_inputs, num_outputs=2) for _ in range(num_members)]
        layers = [[layer for layer in member if isinstance(layer, nn.Linear)] for member in members]
        together = list(zip(*layers, strict=True))
        self.weights = nn.ParameterList(torch.stack([m.weight.mT for m in ms]) for ms in together)
        self.biases = nn.ParameterList(torch.stack([m.bias for m in ms]) for ms in together)

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Tensor | ll.Predictive:
        """The mixture, or with a target the sum of the members' losses, each its mean NLL."""
        members = self.members(inputs)
        if target is None:
            return ll.predictive.mix(members)
        return -members.log_prob(target.unsqueeze(-2).expand_as(members.mean)).sum(-1).mean()

    def members(self, inputs: Tensor) -> ll.GaussianPredictive:
        """The predictive of each member for inputs (B, N), of batch shape (B, M)."""
        hidden = inputs
        for at, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = (F.leaky_relu(hidden) if at else hidden) @ weight + bias.unsqueeze(-2)
        mean, raw = hidden.movedim(0, -2).split(1, -1)  # (B, M, 1)
        variance = F.softplus(raw) + self.min_variance
        return ll.GaussianPredictive(mean, torch.zeros_like(mean), variance)
