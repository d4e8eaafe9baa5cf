"""Information about the weights: of each target (BALD), and of a batch of them (BatchBALD)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ._base import Candidates, Method, greedy
from .conditioning import Conditioned


@dataclass(frozen=True)
class BALD(Method):
    """The points whose targets, each by itself, tell most about the weights (Houlsby et al. 2011).

    In large batches it repeats itself; see `BatchBALD`.
    """

    def choose(
        self,
        candidates: Candidates,
        batch_size: int,
        generator: torch.Generator,
        told: Callable[[], object],
    ) -> Tensor:
        """The largest mutual information, in order."""
        return candidates.information.topk(batch_size).indices


@dataclass(frozen=True)
class BatchBALD(Method):
    r"""Points whose targets together tell most about the weights (Kirsch et al. 2019).

    $\tfrac12\log|I + K|$ of the covariance of the chosen targets, increased greedily; for
    regression that is exact, and the maximum determinant.
    """

    def choose(
        self,
        candidates: Candidates,
        batch_size: int,
        generator: torch.Generator,
        told: Callable[[], object],
    ) -> Tensor:
        """In each step, the target that tells most given those that were chosen."""
        states = [Conditioned(channel, batch_size) for channel in candidates.pool]

        def gain() -> Tensor:
            return sum((state.variance.log1p() for state in states), torch.zeros(()))

        rows = []
        for row in greedy(gain, len(candidates), batch_size, told):
            rows.append(row)
            for state in states:
                state.observe(row)
        return torch.tensor(rows)
