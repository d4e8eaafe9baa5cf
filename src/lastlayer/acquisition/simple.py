"""Points at random, and the most uncertain ones: what better methods are compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ._base import Candidates, Method


@dataclass(frozen=True)
class Random(Method):
    """Points at random."""

    needs_posterior = False

    def choose(
        self,
        candidates: Candidates,
        batch_size: int,
        generator: torch.Generator,
        told: Callable[[], object],
    ) -> Tensor:
        """The first of a random permutation."""
        return torch.randperm(len(candidates), generator=generator)[:batch_size]


@dataclass(frozen=True)
class MaxVariance(Method):
    """The points with the largest variance due to the weights, of targets or logits.

    One by one: of several points that tell the same, all are chosen.
    """

    def choose(
        self,
        candidates: Candidates,
        batch_size: int,
        generator: torch.Generator,
        told: Callable[[], object],
    ) -> Tensor:
        """The largest, in order."""
        return candidates.spread.topk(batch_size).indices
