"""What is not known where a value is absent that training always had."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..calibration import TemperatureScaling
from ..training.crossfitting import CrossFit
from .encoding import Encoding

ENOUGH_ROWS = 2000  # to tell what an absent value costs

AnyAbsence = TypeVar("AnyAbsence", bound="Absence")


class Absence(nn.Module, ABC):
    """Less confident predictions of rows with absent values, by what the columns are worth.

    Args:
        num_columns: columns of the codes.
        num_targets: K.
    """

    added: Tensor  # by an absent value, (num_columns, K)

    def __init__(self, num_columns: int, num_targets: int) -> None:
        super().__init__()
        added = torch.zeros(num_columns, num_targets, dtype=torch.float64)
        self.register_buffer("added", added)

    @abstractmethod
    def forward(self, predictive: Any, absent: Tensor) -> Any:
        """The predictive of rows, of whose values `absent` is 1, (*batch, num_columns)."""

    @abstractmethod
    def cost(self, predictive: Any, target: Tensor, weight: Tensor) -> Tensor:
        """What a column adds, (K,), from calibrated out-of-fold predictions without it."""

    @classmethod
    @torch.no_grad()
    def fit(
        cls: type[AnyAbsence], result: CrossFit, encoding: Encoding, num_targets: int
    ) -> AnyAbsence:
        """By out-of-fold predictions without each of the columns that were complete."""
        share = ENOUGH_ROWS // len(result.folds) + 1
        folds = [
            (network, [part[:share] for part in fold.held_out]) for network, fold in result.folds
        ]
        target, weight = (torch.cat([rows[at] for _, rows in folds]) for at in (1, 2))
        absence = cls(len(encoding.complete), num_targets).to(target.device)
        learned = (encoding.complete + encoding.category).tolist()
        for column in (at for at, new in enumerate(learned) if new):
            parts = [network(encoding.without(column, rows[0])) for network, rows in folds]
            joined = pytree.tree_map(lambda *tensors: torch.cat(tensors), *parts)
            absence.added[column] = absence.cost(result.scaling(joined), target, weight)
        return absence


class AddedVariance(Absence):
    """Variance that adds to that of standardised targets: of regression."""

    def forward(self, predictive: Any, absent: Tensor) -> Any:
        """Predictives stretched about their means."""
        return predictive.scale_variance(1 + absent @ self.added / predictive.variance)

    def cost(self, predictive: Any, target: Tensor, weight: Tensor) -> Tensor:
        """How much larger squared errors are than predicted, and zero if they are smaller."""
        lack = (target - predictive.mean).square() - predictive.variance
        return ((weight.unsqueeze(-1) * lack).sum(0) / weight.sum()).clamp(min=0)


class AddedTemperature(Absence):
    """Logarithms of temperatures that multiply: of classes."""

    def forward(self, predictive: Any, absent: Tensor) -> Any:
        """Probabilities nearer to each other."""
        return predictive.temper((absent @ self.added).exp())

    def cost(self, predictive: Any, target: Tensor, weight: Tensor) -> Tensor:
        """The logarithm of the temperature of least loss, and zero if that is below one."""
        rows = torch.arange(len(target))
        scaling = TemperatureScaling()
        scaling.fit(predictive.__getitem__, (rows, target, weight), progress=False)
        return scaling.temperature.log().clamp(min=0).expand(1)
