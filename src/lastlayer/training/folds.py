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
    def of(
        cls, data: Tensors, count: int, turns: int, seed: int, groups: Tensor | None = None
    ) -> list[Fold]:
        """The first `turns` of `count` folds, of random held-out parts of equal size.

        All folds train on as many examples: those that are left over are never held out. Examples
        of a group are held out together; as parts are then of nearly equal size, some examples
        are left out of training, fewer than the largest group has.
        """
        total = as_batch(data).size
        size = total // count
        if not size:
            raise ValueError(
                f"{total} examples cannot be divided into {count} folds; lower num_folds"
            )
        generator = torch.Generator().manual_seed(seed)
        if groups is None:
            order = torch.randperm(total, generator=generator)
            part = torch.empty_like(order)
            part[order] = torch.arange(total) // size
        else:
            part = _grouped(groups, total, count, generator)
        folds = []
        for turn in range(turns):
            held = part == turn
            rest = (~held).nonzero().squeeze(-1)
            surplus = len(rest) - (total - size)
            if surplus:
                kept = torch.randperm(len(rest), generator=generator)[surplus:]
                rest = rest[kept.sort().values]
            folds.append(cls(_rows(data, rest), _rows(data, held)))
        return folds


@dataclass
class CrossFit:
    """A model of all the data, with hyperparameters and calibration from cross-validation.

    Attributes:
        model: trained on all the data with the best setting.
        scaling: calibration, fitted on the out-of-fold predictions.
        weight_decay: the best one, times the number of examples.
        epochs: the best number.
        tried: in order, dicts of `weight_decay`, `epochs`, `alternative` and the `nll` of the
            calibrated out-of-fold predictions.
        folds: for each fold the model trained on it with the best setting, and the fold.
        alternative: 0 if `make` made the model, n if the n-th of `alternatives` did.
        falling: by how much the last lengthening of the training lowered the NLL, if the search
            ended there, at its maximum of epochs or of time; 0 if longer training was no better.
        out_of_time: whether `time_limit` ended the search; if not even the training on all the data
            was possible, the model is that of the first fold.
    """

    model: nn.Module
    scaling: nn.Module
    weight_decay: float
    epochs: int
    tried: list[dict[str, float]]
    folds: list[tuple[nn.Module, Fold]] = field(repr=False)
    alternative: int = 0
    falling: float = 0.0
    out_of_time: bool = False

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


def _grouped(groups: Tensor, total: int, count: int, generator: torch.Generator) -> Tensor:
    """The part of each example, (T,); `count` for what fits into none.

    Groups of random order, the largest first, go to the part with most room.
    """
    if groups.shape != (total,):
        raise ValueError(
            f"groups must have one number for each of {total} examples, got shape "
            f"{tuple(groups.shape)}"
        )
    names, group = groups.cpu().unique(return_inverse=True)
    if len(names) < count:
        raise ValueError(
            f"{len(names)} groups cannot be divided into {count} folds; lower num_folds"
        )
    sizes = group.bincount()
    order = torch.randperm(len(names), generator=generator)
    order = order[sizes[order].argsort(descending=True, stable=True)]
    room, part = [total // count] * count, torch.full((len(names),), count)
    for index, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        widest = max(range(count), key=lambda turn: room[turn])
        if size <= room[widest]:
            part[index], room[widest] = widest, room[widest] - size
    if (empty := room.count(total // count)) > 0:
        raise ValueError(
            f"{empty} of {count} folds would be empty: the largest group has {int(sizes.max())} of "
            f"{total} examples; lower num_folds"
        )
    return part[group]


def _rows(data: Tensors, chosen: Tensor) -> Tensors:
    return tuple(tensor[chosen] for tensor in data)
