"""Information about predictions (EPIG)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .._checks import check_count
from ._base import Candidates, Method, greedy
from .channels import Channel
from .conditioning import Conditioned

ROWS = 4096  # at a time, which the processor's cache holds


@dataclass(frozen=True)
class EPIG(Method):
    r"""Points whose targets tell most about those of other points (Bickford Smith et al. 2023).

    The mean over target points of the mutual information of two targets,
    $-\tfrac12\log(1 - \rho^2)$ with their correlation ρ, given the targets that were chosen.

    Attributes:
        num_targets: points of the pool at random, whose targets are to be predicted.
    """

    num_targets: int = 128

    def __post_init__(self) -> None:
        check_count("num_targets", self.num_targets)

    def choose(
        self,
        candidates: Candidates,
        batch_size: int,
        generator: torch.Generator,
        told: Callable[[], object],
    ) -> Tensor:
        """In each step, the point that tells most given those that were chosen."""
        targets = torch.randperm(len(candidates), generator=generator)[: self.num_targets]
        states = [Information(channel, targets, batch_size) for channel in candidates.pool]

        def gain() -> Tensor:
            return sum((state.gain() for state in states), torch.zeros(()))

        rows = []
        for row in greedy(gain, len(candidates), batch_size, told):
            rows.append(row)
            for state in states:
                state.observe(row)
        return torch.tensor(rows)


class Information:
    """Covariances of all points with some of them, kept while points are observed.

    Args:
        channel: of n points.
        targets: which of them the information is about, (m,).
        steps: how many points will be observed.
    """

    def __init__(self, channel: Channel, targets: Tensor, steps: int) -> None:
        self.state, self.targets = Conditioned(channel, steps), targets
        self.pairs = channel.between(channel.take(targets))  # (n, m)

    def gain(self) -> Tensor:
        """Mean mutual information of the target of each point and those of the targets, (n,)."""
        variance = self.state.variance
        precision = 1 / (1 + variance[self.targets])
        found = []
        for pairs, own in zip(self.pairs.split(ROWS), variance.split(ROWS), strict=True):
            squares = pairs.square().mul_(precision).div_(-(1 + own[:, None]))
            found.append(-0.5 * squares.log1p_().mean(-1))
        return torch.cat(found)

    def observe(self, row: int) -> None:
        """Condition on the observation of a point."""
        column, _ = self.state.observe(row)
        self.pairs.addr_(column, column[self.targets], alpha=-1)
