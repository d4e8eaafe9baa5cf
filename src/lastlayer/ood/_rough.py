"""Nearest neighbours by rounded distances, and for which inputs none can have been missed."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

CANDIDATES = 32  # at least, whose distance is computed anew
CHUNK = 2**19  # numbers of theirs in memory at a time: they stay in the processor's cache
MULTIPLE = 32  # of the width of rounded references, which products are faster with
ROUNDING = 2.0**-9  # relative error of a number in bfloat16
EPSILON = torch.finfo(torch.float32).eps


class RoughReferences(NamedTuple):
    r"""References about their mean in bfloat16, and how far they are from those that are meant.

    One product orders them by distance, $\|r\|^2/2 - c - q^\top r$, for the squares are two more
    columns: a rounded number, and what is missing in it. With rounded $\tilde r$ and $\tilde q$,

    $$|q^\top r - \tilde q^\top\tilde r|
      \le \|q - \tilde q\|\,\|r\| + \|\tilde q\|\,\|r - \tilde r\|$$
    """

    center: Tensor  # (N,)
    columns: Tensor  # −r̃, ‖r‖²/2 − c in two parts, zeros, (T, ≥ N + 2), bfloat16
    shift: Tensor  # c, the mean of ‖r‖²/2, ()
    length: Tensor  # the largest ‖r‖, ()
    error: Tensor  # the largest ‖r − r̃‖, ()
    square_error: Tensor  # the largest error of ‖r‖²/2 − c, ()

    @classmethod
    def of(cls, references: Tensor) -> RoughReferences:
        """Of references (T, N) in single precision."""
        center = references.mean(0)
        centered = references - center
        rounded = centered.bfloat16()
        half = 0.5 * centered.square().sum(-1)
        rest = half - half.mean()
        first = rest.bfloat16()
        second = (rest - first.float()).bfloat16()
        columns = torch.cat([-rounded, torch.stack([first, second], -1)], -1)
        return cls(
            center,
            F.pad(columns, (0, -columns.shape[-1] % MULTIPLE)),
            half.mean(),
            (2 * half.max()).sqrt(),
            (centered - rounded.float()).norm(dim=-1).max(),
            (rest - first.float() - second.float()).abs().max(),
        )

    def num_measured(self, count: int) -> int:
        """How many references are measured again, to find so many neighbours."""
        return min(max(CANDIDATES, 4 * count), len(self.columns))

    def nearest(self, rows: Tensor, references: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Distance of each row to its k-th nearest reference, and whether it surely is.

        Args:
            rows: (B, N), in single precision.
            references: those that these are of, (T, N).
            count: k, of neighbours.

        Returns:
            The distance, (B,), and whether no reference that is nearer can have been missed, (B,);
            rows for which it is not need another search.
        """
        points = rows - self.center
        rounded = points.bfloat16()
        columns = F.pad(rounded, (0, 2), value=1.0)
        order = F.pad(columns, (0, self.columns.shape[-1] - columns.shape[-1])) @ self.columns.mT
        found = order.topk(self.num_measured(count), -1, largest=False, sorted=False)
        kth = distances(rows, references, found.indices).kthvalue(count, -1).values
        if len(references) == found.indices.shape[-1]:
            return kth, kth.isfinite()
        least = found.values.float().amax(-1)  # at most that of all references not measured
        error = self._order_error(points, rounded.float(), least)
        square = kth.square()
        error = error + rows.shape[-1] * EPSILON * square
        own = points.square().sum(-1)
        return kth, 0.5 * (square - own) - self.shift <= least - error

    def _order_error(self, points: Tensor, rounded: Tensor, order: Tensor) -> Tensor:
        """At most the error of ‖r‖²/2 − c − qᵀr for points q whose rounded value is given, (B,)."""
        own, length = points.norm(dim=-1), self.length
        products = (points - rounded).norm(dim=-1) * length + rounded.norm(dim=-1) * self.error
        sums = points.shape[-1] * length * (own + length)
        sums = sums + (own + length + self.center.norm()).square()
        return products + self.square_error + 2 * EPSILON * sums + ROUNDING * order.abs()


def distances(rows: Tensor, references: Tensor, chosen: Tensor) -> Tensor:
    """Distances of rows (B, N) to some references each, by indices (B, M), (B, M)."""
    size = max(1, CHUNK // (chosen.shape[-1] * rows.shape[-1]))
    parts = [
        torch.linalg.vector_norm(references[index] - row.unsqueeze(-2), dim=-1)
        for row, index in zip(rows.split(size), chosen.split(size), strict=True)
    ]
    return torch.cat(parts) if parts else rows.new_empty(chosen.shape)
