"""A model of a table: from codes to predictions in the target's own units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..network import Network
from ..ood import FeatureDensity
from .encoding import Encoding, location_and_scale

TOGETHER = 8192  # rows of one output that are predicted at once
NEVER_SEEN = 1000.0  # nats that make a row unusual if anything does


class Units(nn.Module):
    """Predictions of y from those of (y − location)/scale; of classes there is nothing to do.

    Args:
        num_outputs: K.
    """

    location: Tensor  # (K,)
    scale: Tensor  # (K,)

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self.register_buffer("location", torch.zeros(num_outputs, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(num_outputs, dtype=torch.float64))

    @classmethod
    def fit(cls, target: Tensor, weight: Tensor) -> Units:
        """Such that targets (T, K) of weights (T,) have mean zero and variance one."""
        units = cls(target.shape[-1]).to(target.device)
        location, scale = location_and_scale(target, weight.unsqueeze(-1))
        units.location.copy_(location)
        units.scale.copy_(scale)
        return units

    def remove(self, target: Tensor) -> Tensor:
        """Targets as the network sees them."""
        return (target - self.location) / self.scale

    def restore(self, target: Tensor) -> Tensor:
        """Targets as they were."""
        return self.location + self.scale * target

    def forward(self, predictive: Any) -> Any:
        """The predictive in the units of the target."""
        return predictive.affine(self.location, self.scale)


class RowDensity(nn.Module):
    """How unusual rows are: how much less likely than the likeliest row, in nats.

    Under a Gaussian of all that describes rows; not its log-density itself, whose level would
    differ between networks whose features differ in size.

    Args:
        width: how many numbers describe a row.
    """

    scale: Tensor  # (width,)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(width, dtype=torch.float64))
        self.gaussian = FeatureDensity(width, 1, covariance="dense", normalized=False)

    @classmethod
    def fit(cls, rows: Tensor, weight: Tensor) -> RowDensity:
        """Of rows, (T, width), with weights, (T,)."""
        density = cls(rows.shape[-1]).to(rows.device)
        density.scale.copy_(Units.fit(rows.double(), weight.double()).scale)
        density.gaussian.update(rows.double() / density.scale, weight=weight)
        return density

    def forward(self, rows: Tensor) -> Tensor:
        """The score of rows (*batch, width), (*batch,)."""
        return self.gaussian(rows / self.scale) - self.gaussian(self.center)

    @property
    def center(self) -> Tensor:
        """The likeliest row, in units of `scale`, (width,)."""
        return self.gaussian.gaussians().mean[0]


class TableModel(nn.Module):
    """Codes of rows to predictions, and to how unusual rows are.

    Args:
        encoding: from codes to what the network takes.
        network: predicts targets of order one.
        scaling: calibrates them.
        units: brings them to the target's own units.
        density: of rows as `described` describes them.
    """

    def __init__(
        self,
        encoding: Encoding,
        network: Network,
        scaling: nn.Module,
        units: Units,
        density: RowDensity,
    ) -> None:
        super().__init__()
        self.encoding, self.network, self.scaling = encoding, network, scaling
        self.units, self.density = units, density

    def forward(self, codes: Tensor) -> Any:
        """The predictive of each row."""
        return self.units(self.scaling(self.network(self.encoding(codes))))

    def features(self, codes: Tensor) -> Tensor:
        """What the last layer sees of each row."""
        return self.network.backbone(self.encoding(codes))

    def ood_score(self, codes: Tensor) -> Tensor:
        """How unusual each row is, (*batch,); very, if a value is missing that never was."""
        score: Tensor = self.density(described(self.network, self.encoding(codes)))
        return score + NEVER_SEEN * self.encoding.new_gaps(codes)


def rows_together(model: TableModel) -> int:
    """How many rows to predict at once; probabilities of many classes take memory."""
    return max(64, TOGETHER // model.network.head.num_outputs)


@torch.no_grad()
def over_rows(
    model: TableModel, codes: NDArray[np.float64], function: Callable[[TableModel, Tensor], Any]
) -> Any:
    """What a function makes of a model and codes, of some thousand rows at a time, on the CPU."""
    device = model.units.scale.device
    parts = torch.from_numpy(codes.copy()).split(rows_together(model))
    found = [pytree.tree_map(Tensor.cpu, function(model, part.to(device))) for part in parts]
    return pytree.tree_map(lambda *tensors: torch.cat(tensors), *found)


def described(network: Network, inputs: Tensor) -> Tensor:
    """Encoded columns of rows, and what the last layer sees of them."""
    return torch.cat([inputs, network.backbone(inputs)], -1)
