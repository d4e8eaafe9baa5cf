"""Distinct rows of a table, with weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Rows(NamedTuple):
    """Distinct rows in lexicographic order, with weights.

    A row of weight 2 is the same as the row twice: training depends neither on how repetitions
    are written nor on the order of the table, and no split has copies of a row on both sides.
    """

    codes: NDArray[np.float64]  # (num_rows, num_columns)
    target: NDArray[np.float64]  # (num_rows, num_targets)
    weight: NDArray[np.float64]  # (num_rows,)

    @classmethod
    def of(
        cls,
        codes: NDArray[np.float64],
        target: NDArray[np.float64],
        weight: NDArray[np.float64] | None,
    ) -> Rows:
        """Drop rows of weight zero, sort the others, and sum the weights of equal ones.

        Args:
            codes: (num_rows, num_columns).
            target: (num_rows, num_targets).
            weight: (num_rows,), none negative; all one if None.
        """
        weight = np.ones(len(codes)) if weight is None else np.asarray(weight, float)
        kept = weight > 0
        table = np.concatenate([codes, target], 1)[kept]
        table = np.where(np.isnan(table), np.nan, table + 0.0)  # one NaN, one zero
        order = np.lexsort(table.T[::-1])
        table, weight = table[order], weight[kept][order]
        same = (table[1:] == table[:-1]) | (np.isnan(table[1:]) & np.isnan(table[:-1]))
        first = np.concatenate([[True], ~same.all(1)])[: len(table)]
        starts = np.flatnonzero(first)
        sums = np.add.reduceat(weight, starts) if len(starts) else weight
        codes, target = np.split(table[starts], [codes.shape[1]], axis=1)
        return cls(codes, target, sums)
