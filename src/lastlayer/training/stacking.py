"""Data of many models, stacked along a new first dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .._data import Batch, as_batch


def length(data: Batch) -> int:
    """Examples of each model."""
    return int(pytree.tree_leaves(data.inputs)[0].shape[1])


def part(data: Batch, start: int, end: int) -> Batch:
    """Some examples of each model."""
    return Batch(*pytree.tree_map_only(Tensor, lambda t: t[:, start:end], tuple(data)))


def stacked(data: Sequence[tuple[Any, ...]], which: str) -> Batch:
    """Data of all models, stacked along a new first dimension."""
    for values in data:
        if not isinstance(values, tuple):
            raise TypeError(
                f"many models need {which} data as tensors, (inputs, target), got a "
                f"{type(values).__name__}; train the models one by one with fit"
            )
    read = [tuple(as_batch(values)) for values in data]
    flat, specs = zip(*(pytree.tree_flatten(values) for values in read), strict=True)
    shapes = {tuple(t.shape if t is not None else () for t in leaves) for leaves in flat}
    if len(shapes) > 1 or any(spec != specs[0] for spec in specs):
        raise ValueError(
            f"the {which} data of all models must have the same shapes, got {sorted(shapes)}; "
            "leave out or repeat some examples, or train the models one by one with fit"
        )
    if read[0][1] is None or not read[0][1].numel():
        raise ValueError(f"the {which} data must be (inputs, target), and not empty")
    first = flat[0]
    stacked = [
        None if first[at] is None else torch.stack([leaves[at] for leaves in flat])
        for at in range(len(first))
    ]
    return Batch(*pytree.tree_unflatten(stacked, specs[0]))
