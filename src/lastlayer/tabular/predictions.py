"""Predictions for the rows of a table: what estimators, reports, files and ONNX all use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from .model import TableModel

Array = NDArray[np.float64]

MAX_OUTPUTS = 8192  # predicted at once


class Predictions:
    """Predictions for rows, computed when first asked for and kept, on the CPU.

    They are computed some thousand rows at a time.

    Args:
        model: trained.
        codes: (num_rows, num_columns).
    """

    def __init__(self, model: TableModel, codes: Array) -> None:
        self.model, self.codes = model, codes

    @cached_property
    def predictive(self) -> Any:
        """The predictive of each row, in the units of the target."""
        return self.map(TableModel.forward)

    @cached_property
    def ood_score(self) -> Array:
        """How unusual each row is, (num_rows,)."""
        score: Array = self.map(TableModel.ood_score).numpy()
        return score

    @torch.no_grad()
    def map(self, function: Callable[[TableModel, Tensor], Any]) -> Any:
        """The tensors that a function makes of the model and codes, for all rows."""
        device = self.model.units.scale.device
        parts = torch.from_numpy(self.codes.copy()).split(max_rows(self.model))
        results = [
            pytree.tree_map(Tensor.cpu, function(self.model, part.to(device))) for part in parts
        ]
        return pytree.tree_map(lambda *tensors: torch.cat(tensors), *results)


def max_rows(model: TableModel) -> int:
    """The number of rows to predict at once: probabilities of many classes take memory."""
    return max(64, MAX_OUTPUTS // model.network.head.num_outputs)
