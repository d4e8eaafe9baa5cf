"""Distinct rows of a table, with weights, and how to recognise them."""

from __future__ import annotations

import base64
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_DIGESTS = 20_000  # of a table; of larger ones those of the lowest digests are kept


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

    def fingerprint(self) -> str:
        """Digests of the rows, as text, by which `share_in` recognises them."""
        lowest = np.unique(_digests(self.codes, self.target))[:MAX_DIGESTS]
        return base64.b64encode(lowest.astype("<u4").tobytes()).decode()


def share_in(
    fingerprint: str, codes: NDArray[np.float64], target: NDArray[np.float64]
) -> tuple[int, int]:
    """How many rows are equal to rows of a fingerprint, and of how many this could be told.

    Args:
        fingerprint: of other rows.
        codes: (num_rows, num_columns).
        target: (num_rows, num_targets).
    """
    known = np.frombuffer(base64.b64decode(fingerprint), "<u4")
    digests = _digests(codes, target)
    if len(known) == MAX_DIGESTS:
        digests = digests[digests <= known[-1]]
    return int(np.isin(digests, known).sum()), len(digests)


def _digests(codes: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.uint32]:
    """A hash of each row, (num_rows,); equal rows have equal ones, others by chance of 2⁻³²."""
    table = np.concatenate([codes, target], 1) + 0.0  # one zero
    table = np.where(np.isnan(table), np.nan, table)  # one NaN
    digests = np.zeros(len(table), np.uint64)
    for column in np.ascontiguousarray(table.T).view(np.uint64):
        digests = (digests ^ column) * np.uint64(0x9E3779B97F4A7C15)  # which wraps around
        digests ^= digests >> np.uint64(29)
    return ((digests * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(32)).astype(np.uint32)
