"""Covariances between points, given the targets of those that were chosen."""

from __future__ import annotations

import torch
from torch import Tensor

from .channels import Channel


class Conditioned:
    r"""A channel whose weights are conditioned on observations of some points, one after the other.

    With the chosen j at step t, $c_t(i) = k_t(i, j)/\sqrt{1 + k_t(j, j)}$ and
    $k_{t+1}(i, i') = k_t(i, i') - c_t(i)\,c_t(i')$: the columns of a Cholesky factor.

    Args:
        channel: of n points.
        steps: how many points will be chosen.

    Attributes:
        variance: k_t(i, i), (n,).
    """

    def __init__(self, channel: Channel, steps: int) -> None:
        self.channel = channel
        self.variance = channel.variance.clone()
        self.columns = channel.length.new_empty(steps, len(channel))
        self.step = 0

    @property
    def past(self) -> Tensor:
        """c_1 to c_t, (t, n)."""
        return self.columns[: self.step]

    def observe(self, row: int) -> tuple[Tensor, float]:
        """Condition on the observation of a point; c_t, (n,), and √(1 + k_t(j, j))."""
        column = self.channel.column(row) - self.past[:, row] @ self.past
        scale = float(self.variance[row] + 1) ** 0.5
        column /= scale
        self.columns[self.step] = column
        self.step += 1
        self.variance = torch.addcmul(self.variance, column, column, value=-1).clamp_(min=0)
        return column, scale
