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


@dataclass(frozen=True)
class Entropy(Method):
    """The points whose targets are least certain, by the entropy of the predictive.

    What the label leaves open counts, whether or not more labels would tell: for classes that is
    how close a decision is.
    """

    def choose(
        self,
        candidates: Candidates,
        batch_size: int,
        generator: torch.Generator,
        told: Callable[[], object],
    ) -> Tensor:
        """The largest, in order."""
        return candidates.entropy.topk(batch_size).indices


@dataclass(frozen=True)
class Margin(Method):
    """The points whose two most probable classes are closest; for two classes, `Entropy`."""

    def choose(
        self,
        candidates: Candidates,
        batch_size: int,
        generator: torch.Generator,
        told: Callable[[], object],
    ) -> Tensor:
        """The smallest, in order."""
        probs = candidates.probs
        if probs.shape[-1] < 2:
            raise ValueError(
                "margin needs the probabilities of at least two classes, and this head predicts "
                "numbers; use method='lcmd'"
            )
        first, second = probs.topk(2).values.unbind(-1)
        return (second - first).topk(batch_size).indices
