"""Cross-validation folds, and what models trained on them predict of held-out data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .._data import as_batch

Tensors = tuple[Tensor, ...]  # (inputs, target) or (inputs, target, weight)


@dataclass(frozen=True)
class Fold:
    """Training data and held-out data of one fold of cross-validation."""

    train: Tensors
    held_out: Tensors

    @classmethod
    def of(cls, data: Tensors, count: int, turns: int, seed: int) -> list[Fold]:
        """The first `turns` of `count` folds, of random held-out parts of equal size.

        Examples that are left over are never held out, so that all folds train on as many.
        """
        total = as_batch(data).size
        size = total // count
        if not size:
            raise ValueError(
                f"{total} examples cannot be divided into {count} folds; lower num_folds"
            )
        order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
        part = torch.empty_like(order)
        part[order] = torch.arange(total) // size
        held = [part == turn for turn in range(turns)]
        return [cls(_rows(data, ~chosen), _rows(data, chosen)) for chosen in held]


@dataclass
class CrossFit:
    """A model of all the data, with hyperparameters and calibration from cross-validation.

    Attributes:
        model: trained on all the data with the best setting.
        scaling: calibration, fitted on the out-of-fold predictions.
        weight_decay: the best one, times the number of examples.
        epochs: the best number.
        tried: in order, dicts of `weight_decay`, `epochs` and the `nll` of the calibrated
            out-of-fold predictions.
        folds: for each fold the model trained on it with the best setting, and the fold.
    """

    model: nn.Module
    scaling: nn.Module
    weight_decay: float
    epochs: int
    tried: list[dict[str, float]]
    folds: list[tuple[nn.Module, Fold]] = field(repr=False)

    def held_out(self, models: Sequence[nn.Module] | None = None) -> tuple[Any, Tensors]:
        """Out-of-fold predictions, and the data they are of.

        Args:
            models: one for each fold, in the place of its own.
        """
        models = [model for model, _ in self.folds] if models is None else models
        return held_out_predictions(models, [fold for _, fold in self.folds])

    def solve(self, data: Tensors) -> CrossFit:
        """The same features, with the last layer of each model solved on them.

        The variance of the prior is the one with the lowest NLL of out-of-fold predictions, from
        which the calibration comes, too. `model.head.prior` of the result has it.

        Args:
            data: all the data, as they were given to `crossfit`.
        """
        from .solving import solve  # which needs this class

        return solve(self, data)


@torch.no_grad()
def held_out_predictions(models: Sequence[nn.Module], folds: Sequence[Fold]) -> tuple[Any, Tensors]:
    """Predictions of each fold's held-out data by its model, joined, and those data."""
    pairs = list(zip(models, folds, strict=True))
    predictives = [model(fold.held_out[0]) for model, fold in pairs]
    predictive = pytree.tree_map(lambda *parts: torch.cat(parts), *predictives)
    data = zip(*(fold.held_out for _, fold in pairs), strict=True)
    return predictive, tuple(torch.cat(parts) for parts in data)


def calibrated(scaling: Any, predictive: Any, data: Tensors) -> Any:
    """Fit a scaling to predictions of data, and scale them."""
    rows = torch.arange(len(data[0]))  # in the place of inputs, for what is predicted already
    scaling.fit(predictive.__getitem__, (rows, *data[1:]), progress=False)
    return scaling(predictive)


def _rows(data: Tensors, chosen: Tensor) -> Tensors:
    return tuple(tensor[chosen] for tensor in data)
