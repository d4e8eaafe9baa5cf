"""How unusual rows are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..network import Network
from ..ood import FeatureDensity
from ..training.crossfitting import CrossFit
from .encoding import Encoding, location_and_scale


class RowDensity(nn.Module):
    """How unusual rows are: how much less likely than the likeliest row, in nats.

    Under a Gaussian over network inputs and features. Not the log-density itself, whose level
    differs between networks with features of different scale.

    Args:
        width: numbers that describe a row.
    """

    scale: Tensor  # (width,)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(width, dtype=torch.float64))
        self.gaussian = FeatureDensity(
            width, 1, covariance="dense", normalized=False, unit_length=False
        )

    @classmethod
    def fit(cls, rows: Tensor, weight: Tensor) -> RowDensity:
        """The density of rows, (T, width), with weights, (T,)."""
        density = cls(rows.shape[-1]).to(rows.device)
        _, scale = location_and_scale(rows.double(), weight.double().unsqueeze(-1))
        density.scale.copy_(scale)
        density.gaussian.update(rows.double() / density.scale, weight=weight)
        return density

    def forward(self, rows: Tensor) -> Tensor:
        """The score of rows (*batch, width), (*batch,)."""
        return self.gaussian(rows / self.scale) - self.gaussian(self.center)

    @property
    def center(self) -> Tensor:
        """The likeliest row, in units of `scale`, (width,)."""
        return self.gaussian.gaussians().mean[0]


def describe(encoding: Encoding, network: Network, inputs: Tensor) -> Tensor:
    """Network inputs of rows, without rare levels, and learned features, side by side."""
    inputs = encoding.usual(inputs)
    return torch.cat([inputs, network.backbone(inputs)], -1) if learns(network) else inputs


def learns(network: Network) -> bool:
    """Whether a network has features of its own: without hidden layers they are its inputs."""
    return any(True for _ in network.backbone.parameters())


@torch.no_grad()
def densities(
    result: CrossFit, encoding: Encoding, inputs: Tensor, weight: Tensor
) -> tuple[RowDensity, Tensor]:
    """The density of all rows, and out-of-fold OOD scores."""

    def rows(network: Any, inputs: Tensor) -> Tensor:
        return describe(encoding, network, inputs).double()

    scores = [
        RowDensity.fit(rows(network, fold.train[0]), fold.train[2])(rows(network, fold.held_out[0]))
        for network, fold in result.folds
    ]
    return RowDensity.fit(rows(result.model, inputs), weight), torch.cat(scores)
