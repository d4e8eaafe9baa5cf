"""The processes that train one model together, as started by `torchrun`."""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .._data import Batch


class Part(NamedTuple):
    """A process's part of a batch."""

    order: Tensor  # the examples, (count,)
    factor: float  # what their loss counts in the mean over processes
    total: int  # examples of the whole batch


class Processes:
    """All processes of a run: one, unless it was started by `torchrun`.

    Args:
        device: of the model, for what the processes tell each other.
    """

    def __init__(self, device: torch.device) -> None:
        together = dist.is_available() and dist.is_initialized()
        if not together and "TORCHELASTIC_RUN_ID" in os.environ:  # started by torchrun
            _join("nccl" if device.type == "cuda" else "gloo")
            together = True
        self.device = device
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1

    @property
    def first(self) -> bool:
        """Whether this process shows progress and writes files for all."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over processes."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def each(self, value: int) -> list[int]:
        """What every process has, which all must ask for."""
        values = torch.zeros(self.size, dtype=torch.int64, device=self.device)
        values[self.rank] = value
        return self.sum(values).tolist()

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

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()

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


def _join(backend: str) -> None:
    """Join the other processes until this one ends.

    A thread of the group that outlives the interpreter aborts the process, and the group with its
    threads is only gone when nothing holds it. Functions of `torch.distributed.nn` hold, for ever,
    the group that exists when they are imported, so that they are imported before.
    """
    import torch.distributed.nn

    torch.distributed.init_process_group(backend)
    atexit.register(_leave)


def _leave() -> None:
    """Leave the group of processes, if there is one and others do not hinder it."""
    if not dist.is_initialized():
        return
    failed = getattr(sys, "last_traceback", None)
    if failed is not None:
        if dist.get_backend() == "nccl":
            return  # leaving may wait for processes that wait for this one
        traceback.clear_frames(failed)  # which hold wrapped models, and these the group
    gc.collect()  # wrapped models may be in cycles
    dist.destroy_process_group()
