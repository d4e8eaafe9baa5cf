"""The least variance of all predictions (BAIT)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .._checks import check_count
from ._base import Candidates, Method, greedy
from .channels import Channel
from .conditioning import Conditioned


@dataclass(frozen=True)
class BAIT(Method):
    r"""Points after which the predictions of the whole pool vary least (Ash et al. 2021).

    The sum of the variances due to the weights over the pool, in units of noise, is
    $\mathrm{tr}(S F)$ with the Fisher information F of the pool; it is decreased greedily, forward
    only. The choice of j takes $\sum_i k(i, j)^2/(1 + k(j, j))$ from it.

    Attributes:
        num_targets: points at random that stand for the pool where labels are of several classes;
            otherwise the sum over the pool is exact.
    """

    num_targets: int = 256

    def __post_init__(self) -> None:
        check_count("num_targets", self.num_targets)

    def choose(
        self,
        candidates: Candidates,
        batch_size: int,
        generator: torch.Generator,
        told: Callable[[], object],
    ) -> Tensor:
        """In each step, the point that decreases the sum most."""
        states = [
            Reduction(channel, channel.representatives(self.num_targets, generator), batch_size)
            for channel in candidates.pool
        ]

        def gain() -> Tensor:
            return sum((state.gain for state in states), torch.zeros(()))

        rows = []
        for row in greedy(gain, len(candidates), batch_size, told):
            rows.append(row)
            for state in states:
                state.observe(row)
        return torch.tensor(rows)


class Reduction:
    """Σ_* k(i, *)² over targets *, kept while points are observed.

    Args:
        channel: of n points.
        targets: m of the same channel.
        steps: how many points will be observed.
    """

    def __init__(self, channel: Channel, targets: Channel, steps: int) -> None:
        self.state = Conditioned(channel, steps)
        self.targets, self.against = targets, channel.against(targets)
        self.target_columns = channel.length.new_empty(steps, len(targets))
        self.squares = _squares(channel, targets)

    @property
    def gain(self) -> Tensor:
        """By how much the observation of a point decreases the variances of the targets, (n,)."""
        return self.squares / (1 + self.state.variance)

    def observe(self, row: int) -> None:
        """Condition on the observation of a point."""
        before = self.state.step
        past, others = self.state.past, self.target_columns[:before]
        own = self.state.channel.take(torch.tensor([row]))
        pairs = own.between(self.targets).squeeze(0) - past[:, row] @ others
        column, scale = self.state.observe(row)
        pairs /= scale
        products = self.against(pairs) - (others @ pairs) @ self.columns_before(before)
        self.target_columns[before] = pairs
        # (k(i, *) − c(i) c(*))², summed over targets
        self.squares += column * (column * pairs.square().sum() - 2 * products)
        self.squares.clamp_(min=0)

    def columns_before(self, step: int) -> Tensor:
        """c_1 to c_t, (t, n)."""
        return self.state.columns[:step]


def _squares(channel: Channel, targets: Channel, rows: int = 65536) -> Tensor:
    """Σ_* k(i, *)², (n,)."""
    parts = torch.arange(len(channel)).split(rows)
    return torch.cat([channel.take(part).between(targets).square().sum(-1) for part in parts])
