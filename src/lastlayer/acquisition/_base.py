"""What methods are given and what they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .channels import Channel


@dataclass(frozen=True)
class Candidates:
    """A pool, and what was labelled before.

    Attributes:
        pool: channels of the pool, one for each independent observation that a target is.
        labelled: the same channels of the labelled points; () if there are none.
        spread: variance due to the weights, of targets or logits, summed over outputs, (n,).
        entropy: of the predictive of each target in nats, (n,).
        probs: of the classes of each label, (n, K); (n, 0) for regression.
    """

    pool: Sequence[Channel]
    labelled: Sequence[Channel]
    spread: Tensor
    entropy: Tensor
    probs: Tensor

    def __len__(self) -> int:
        return len(self.spread)

    @property
    def information(self) -> Tensor:
        """Mutual information of each target and the weights in nats, (n,)."""
        return sum((0.5 * channel.variance.log1p() for channel in self.pool), torch.zeros(()))


class Method(ABC):
    """A rule by which points are chosen from a pool.

    Attributes:
        needs_posterior: whether it asks anything of the model.
    """

    needs_posterior: ClassVar[bool] = True

    @abstractmethod
    def choose(
        self,
        candidates: Candidates,
        batch_size: int,
        generator: torch.Generator,
        told: Callable[[], object],
    ) -> Tensor:
        """Indices of the points to label, (batch_size,), in the order in which they were chosen.

        Args:
            candidates: the pool.
            batch_size: how many to choose.
            generator: of what is random.
            told: to be called after each choice, for the progress bar.
        """


def greedy(
    score: Callable[[], Tensor], size: int, batch_size: int, told: Callable[[], object]
) -> Iterator[int]:
    """Yield the point with the highest score that was not chosen yet, again and again.

    Args:
        score: the present scores, (n,).
        size: n.
        batch_size: how many to yield.
        told: called after each.
    """
    chosen = torch.zeros(size, dtype=torch.bool)
    for _ in range(batch_size):
        row = int(score().masked_fill(chosen, -torch.inf).argmax())
        chosen[row] = True
        yield row
        told()
