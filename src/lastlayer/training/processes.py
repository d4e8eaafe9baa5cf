"""The processes that train one model together, as started by `torchrun`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from torch import Tensor

from .._data import Batch
from .._processes import Processes as AllProcesses


class Part(NamedTuple):
    """A process's part of a batch."""

    order: Tensor  # the examples, (count,)
    factor: float  # what their loss counts in the mean over processes
    total: int  # examples of the whole batch


class Processes(AllProcesses):
    """All processes of a run, which take their parts of every batch."""

    def check_equal(self, what: str, value: int) -> None:
        """Raise on all processes unless they have as many of something."""
        values = self.each(value)
        if len(set(values)) > 1:
            raise ValueError(
                f"processes that train together need as many {what} each, got {values}; a "
                "DistributedSampler or drop_last=True makes parts equal"
            )

    def in_step(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Batches, as long as all processes have one; an error on all if one has no more."""
        iterator = iter(batches)
        if self.size == 1:
            yield from iterator
            return
        for count in itertools.count():
            batch = next(iterator, None)
            having = self.each(batch is not None)
            if batch is None and not any(having):
                return
            if batch is None or not all(having):
                ended = [rank for rank, has in enumerate(having) if not has]
                raise ValueError(
                    "processes that train together need as many batches each, but after "
                    f"{count} batches the data of processes {ended} ended, and others did not"
                )
            yield batch

    def share(self, order: Tensor, batch_size: int) -> list[Part]:
        """This process's part of every batch of an epoch.

        Gradients are averaged over processes. A part of n_r of n examples counts n_r/n times the
        number of processes, so that the average is the gradient of one process with the whole
        batch. A process without a part has an example that counts nothing.
        """
        parts = []
        for batch in order.split(batch_size):
            mine = batch[self.rank :: self.size]
            factor = len(mine) * self.size / len(batch)
            parts.append(Part(mine if len(mine) else batch[:1], factor, len(batch)))
        return parts
