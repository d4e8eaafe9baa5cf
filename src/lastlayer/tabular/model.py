"""A model of a table: from codes to predictions in the units of the target."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..network import Network
from ..predictive import Predictive
from .absence import Absence
from .density import RowDensity, describe
from .encoding import Encoding, location_and_scale

NEWLY_MISSING = 1000.0  # nats per value, far above any threshold


class Units(nn.Module):
    """Predictives of y from those of the standardised target, (y − location)/scale.

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
        """The units in which targets (T, K) with weights (T,) have mean zero and variance one."""
        units = cls(target.shape[-1]).to(target.device)
        location, scale = location_and_scale(target, weight.unsqueeze(-1))
        units.location.copy_(location)
        units.scale.copy_(scale)
        return units

    def remove(self, target: Tensor) -> Tensor:
        """Standardised targets."""
        return (target - self.location) / self.scale

    def restore(self, target: Tensor) -> Tensor:
        """Targets in their own units, from standardised ones."""
        return self.location + self.scale * target

    def forward(self, predictive: Any) -> Any:
        """The predictive in the units of the target; of classes, the predictive itself."""
        return Predictive.check(predictive).affine(self.location, self.scale)


class TableModel(nn.Module):
    """Codes of rows to predictives and OOD scores.

    Args:
        encoding: from codes to network inputs.
        network: predicts standardised targets.
        scaling: calibrates its predictives.
        units: maps them to the units of the target.
        density: of rows as `describe` describes them.
        absence: makes predictions less confident where values are absent.
    """

    def __init__(
        self,
        encoding: Encoding,
        network: Network,
        scaling: nn.Module,
        units: Units,
        density: RowDensity,
        absence: Absence,
    ) -> None:
        super().__init__()
        self.encoding, self.network, self.scaling = encoding, network, scaling
        self.units, self.density = units, density
        self.absence = absence

    def forward(self, codes: Tensor) -> Any:
        """The predictive of each row."""
        return self.units(self.widened(self.scaling(self.network(self.encoding(codes))), codes))

    def widened(self, predictive: Any, codes: Tensor) -> Any:
        """Predictives of standardised targets, less confident where values are absent."""
        return self.absence(predictive, self.encoding.absent(codes))

    def features(self, codes: Tensor) -> Tensor:
        """The features of each row, which the last layer takes."""
        return self.network.backbone(self.encoding(codes))

    def ood_score(self, codes: Tensor) -> Tensor:
        """How unusual each row is, (*batch,); very, where a complete column has a missing value."""
        score: Tensor = self.density(describe(self.encoding, self.network, self.encoding(codes)))
        return score + NEWLY_MISSING * self.encoding.num_newly_missing(codes)
