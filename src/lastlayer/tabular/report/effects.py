"""What a model goes by: effects of columns on its predictions, and how much each one matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..columns import Column
from ..encoding import Encoding
from .reading import Array, Places

MOST_PLACES = 20  # of a number
MOST_LEVELS = 8  # of a category


class Effect(NamedTuple):
    """How predictions change with a column, the others being as they are."""

    places: Array  # codes of the column, (G,)
    average: Array  # over rows, (G, K)
    low: Array  # one row in ten is below, (G, K)
    high: Array  # one row in ten is above, (G, K)


def places(column: Column, codes: Array) -> Array:
    """Values at which to look at the effect of a column, as codes.

    Those of numbers are at equal shares of the rows, and never go to the extremes if there are many
    different ones. Those of categories are the most frequent levels, or what is missing, first.
    """
    if column.kind == "category":
        levels, counts = np.unique(codes, return_counts=True)  # NaN is one of them
        return levels[np.argsort(-counts, kind="stable")[:MOST_LEVELS]]
    known = np.unique(codes[~np.isnan(codes)])
    if len(known) <= MOST_PLACES:
        return known
    shares = np.linspace(0.025, 0.975, MOST_PLACES)
    return np.unique(np.nanquantile(codes, shares, method="nearest"))


def partial_dependence(
    predict: Callable[[Array], Array],
    codes: Array,
    at: int,
    values: Array,
    *,
    centred: bool = False,
) -> Effect:
    """Predictions of rows whose column has been set to each of some values.

    Args:
        predict: from codes, (num_rows, num_columns), to predictions, (num_rows, K).
        codes: of rows, (num_rows, num_columns).
        at: the column.
        values: codes of the column, (G,).
        centred: whether the range over rows is that of their curves moved to the same average. What
            rows have apart from the column, such as their class, then does not widen it.
    """
    everywhere = np.repeat(codes[None], len(values), 0)  # (G, num_rows, num_columns)
    everywhere[:, :, at] = values[:, None]
    found = predict(everywhere.reshape(-1, codes.shape[1]))
    found = found.reshape(len(values), len(codes), -1)
    average = found.mean(1)
    if centred:
        found = found - found.mean(0) + average.mean(0)
    low, high = np.quantile(found, [0.1, 0.9], axis=1)
    return Effect(values, average, low, high)


def shuffling_slope(
    predict: Callable[[Tensor], Tensor], encoding: Encoding, codes: Array, seed: int = 0
) -> Array:
    """How far predictions move when a column is shuffled, to first order, (num_columns,).

    All columns together take no longer than a few predictions.

    Args:
        predict: from encoded rows to a number for each, (num_rows,).
        encoding: of the codes.
        codes: of rows, (num_rows, num_columns).
        seed: of the shuffle.
    """
    order = np.random.default_rng(seed).permutation(len(codes))
    inputs = encoding(torch.from_numpy(codes).to(encoding.scale)).requires_grad_()
    (slope,) = torch.autograd.grad(predict(inputs).sum(), inputs)  # (num_rows, width)
    moves = slope * (inputs[order] - inputs).detach()
    of_columns = moves.new_zeros(codes.shape).index_add_(1, encoding.source, moves)
    return np.asarray(of_columns.abs().mean(0).cpu())


def permutation_importance(
    loss: Callable[[Array], float],
    codes: Array,
    columns: Places | None = None,
    num_shuffles: int = 5,
    seed: int = 0,
) -> Array:
    """By how much the loss rises when a column is shuffled, (num_shuffled,); mean of shuffles.

    Args:
        loss: of codes, (num_rows, num_columns), in the order of the rows.
        codes: of rows, (num_rows, num_columns).
        columns: which to shuffle, (num_shuffled,); all by default.
        num_shuffles: of each column.
        seed: of the shuffles.
    """
    generator = np.random.default_rng(seed)
    orders = [generator.permutation(len(codes)) for _ in range(num_shuffles)]  # same for all
    before = loss(codes)
    columns = np.arange(codes.shape[1]) if columns is None else columns
    rises = np.empty((len(columns), num_shuffles))
    for place, at in enumerate(columns):
        for shuffle, order in enumerate(orders):
            shuffled = codes.copy()
            shuffled[:, at] = codes[order, at]
            rises[place, shuffle] = loss(shuffled) - before
    return np.asarray(rises.mean(1))
