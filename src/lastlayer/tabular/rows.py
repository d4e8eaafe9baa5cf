"""The rows of a table, each once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Rows(NamedTuple):
    """Distinct rows in an order of their own, with weights.

    A row of weight 2 and the same row twice are one: what is learnt depends neither on how
    repetitions are written nor on the order of a table, and copies of a row never are on both
    sides of a split.
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
        """Leave out rows of weight zero, sort the others, and add up the weights of equal ones.

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
