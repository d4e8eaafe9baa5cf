"""Permutation importance of columns, and partial dependence of predictions on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..columns import Column
from ..encoding import Encoding
from ..predictions import Array
from ..reading import Indices

MAX_GRID = 20  # values of a number
MAX_LEVELS = 8  # of a category


class Effect(NamedTuple):
    """Partial dependence of predictions on a column."""

    grid: Array  # codes of the column, (G,)
    average: Array  # over rows, (G, K)
    low: Array  # the 10 % quantile over rows, (G, K)
    high: Array  # the 90 % quantile over rows, (G, K)


def grid(column: Column, codes: Array) -> Array:
    """Values at which to evaluate the effect of a column, as codes.

    Those of numbers are quantiles of the rows, without the extremes if there are many different
    ones. Those of categories are the most frequent levels first, where missing is a level too.
    """
    if column.kind == "category":
        levels, counts = np.unique(codes, return_counts=True)  # NaN is one of them
        return levels[np.argsort(-counts, kind="stable")[:MAX_LEVELS]]
    known = np.unique(codes[~np.isnan(codes)])
    if len(known) <= MAX_GRID:
        return known
    masses = np.linspace(0.025, 0.975, MAX_GRID)
    return np.unique(np.nanquantile(codes, masses, method="nearest"))


def partial_dependence(
    predict: Callable[[Array], Array],
    codes: Array,
    at: int,
    values: Array,
    *,
    centred: bool = False,
) -> Effect:
    """Predictions for rows whose column is set to each of some values (Friedman, 2001).

    Args:
        predict: from codes, (num_rows, num_columns), to predictions, (num_rows, K).
        codes: of rows, (num_rows, num_columns).
        at: index of the column.
        values: codes of the column, (G,).
        centred: whether quantiles over rows are of curves shifted to the same average, so that
            differences between rows in other columns do not widen the range.
    """
    repeated = np.repeat(codes[None], len(values), 0)  # (G, num_rows, num_columns)
    repeated[:, :, at] = values[:, None]
    curves = predict(repeated.reshape(-1, codes.shape[1])).reshape(len(values), len(codes), -1)
    average = curves.mean(1)
    if centred:
        curves = curves - curves.mean(0) + average.mean(0)
    low, high = np.quantile(curves, [0.1, 0.9], axis=1)
    return Effect(values, average, low, high)


def shuffling_slope(
    predict: Callable[[Tensor], Tensor], encoding: Encoding, codes: Array, seed: int = 0
) -> Array:
    """Mean change of predictions when a column is shuffled, to first order, (num_columns,).

    All columns together cost as much as a few predictions.

    Args:
        predict: from encoded rows to one number each, (num_rows,).
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
    columns: Indices | None = None,
    num_shuffles: int = 5,
    seed: int = 0,
) -> Array:
    """Mean increase of the loss when a column is shuffled (Breiman, 2001), (num_shuffled,).

    Args:
        loss: of codes, (num_rows, num_columns), in the order of the rows.
        codes: of rows, (num_rows, num_columns).
        columns: indices of columns to shuffle, (num_shuffled,); all by default.
        num_shuffles: shuffles of each column.
        seed: of the shuffles.
    """
    generator = np.random.default_rng(seed)
    orders = [
        generator.permutation(len(codes)) for _ in range(num_shuffles)
    ]  # the same for all columns
    before = loss(codes)
    columns = np.arange(codes.shape[1]) if columns is None else columns
    increases = np.empty((len(columns), num_shuffles))
    for place, at in enumerate(columns):
        for shuffle, order in enumerate(orders):
            shuffled = codes.copy()
            shuffled[:, at] = codes[order, at]
            increases[place, shuffle] = loss(shuffled) - before
    return np.asarray(increases.mean(1))
