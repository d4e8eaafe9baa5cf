"""The largest cluster's farthest point (LCMD)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ._base import Candidates, Method
from .channels import Channel

ROWS = 8192  # at a time, for distances to many centres


@dataclass(frozen=True)
class LCMD(Method):
    r"""From the largest cluster, the point farthest from its centre (Holzmüller et al. 2023).

    Every point belongs to the nearest labelled or chosen point, its centre, at the squared distance
    $k(i, i) + k(j, j) - 2k(i, j)$: the variance of the difference of their outputs. The size of a
    cluster is the sum of these, so that points are chosen where there are many and where they are
    far from what is known.
    """

    def choose(
        self,
        candidates: Candidates,
        batch_size: int,
        generator: torch.Generator,
        told: Callable[[], object],
    ) -> Tensor:
        """The first, if nothing is labelled, is the one with the largest variance."""
        distance, centre = _nearest(candidates.pool, candidates.labelled)
        num_centres = len(candidates.labelled[0]) if candidates.labelled else 1
        chosen = torch.zeros(len(candidates), dtype=torch.bool)
        rows = []
        for _ in range(batch_size):
            left = distance.masked_fill(chosen, 0.0)
            sizes = left.new_zeros(num_centres).index_add_(0, centre, left)
            inside = (centre == sizes.argmax()) & ~chosen
            inside = inside if bool(inside.any()) else ~chosen  # all distances are zero
            row = int(left.masked_fill(~inside, -1.0).argmax())
            chosen[row] = True
            nearer = _distances(candidates.pool, row)
            changed = nearer < distance
            distance = torch.where(changed, nearer, distance)
            centre.masked_fill_(changed, num_centres)
            num_centres += 1
            rows.append(row)
            told()
        return torch.tensor(rows)


def _nearest(pool: Sequence[Channel], labelled: Sequence[Channel]) -> tuple[Tensor, Tensor]:
    """Squared distance to the nearest labelled point, and its index; variances if there is none."""
    total = sum((channel.variance for channel in pool), torch.zeros(()))
    if not labelled:
        return total, torch.zeros(len(total), dtype=torch.int64)
    found = []
    for rows in torch.arange(len(total)).split(ROWS):
        squares = torch.zeros(())
        for own, others in zip(pool, labelled, strict=True):
            part = own.take(rows)
            squares = squares + (
                part.variance[:, None] + others.variance - 2 * part.between(others)
            )
        found.append(squares.min(-1))
    distance = torch.cat([one.values for one in found]).clamp_(min=0)
    return distance, torch.cat([one.indices for one in found])


def _distances(pool: Sequence[Channel], row: int) -> Tensor:
    """Squared distances to a point of the pool, (n,)."""
    parts = (c.variance + c.variance[row] - 2 * c.column(row) for c in pool)
    return sum(parts, torch.zeros(())).clamp(min=0)
