"""The processes that train one model together, as started by `torchrun`."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Share(NamedTuple):
    """A process's part of an epoch's order, and what its examples count."""

    order: Tensor  # (count,)
    weight: Tensor | None  # (count,)


class Processes:
    """All processes of a run: one, unless it was started by `torchrun`."""

    def __init__(self, device: torch.device) -> None:
        together = dist.is_available() and dist.is_initialized()
        if not together and "TORCHELASTIC_RUN_ID" in os.environ:  # started by torchrun
            _join("nccl" if device.type == "cuda" else "gloo")
            together = True
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1

    @property
    def first(self) -> bool:
        """Whether this process speaks for all: shows progress and writes files."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over processes."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            dist.barrier()

    def local_size(self, batch_size: int) -> int:
        """A process's part of a batch."""
        return -(-batch_size // self.size)

    def share(self, order: Tensor, batch_size: int) -> Share:
        """Split every batch of an epoch evenly.

        Gradients are averaged over processes, so that parts of equal size are needed: a batch
        that cannot be split evenly is filled up with examples of weight zero, and the others
        count more, so that the average is that of one process with the whole batch.
        """
        if self.size == 1:
            return Share(order, None)
        orders, weights = [], []
        for batch in order.split(batch_size):
            count = self.local_size(len(batch)) * self.size
            filled = torch.cat([batch, batch[:1].expand(count - len(batch))])
            weight = torch.full((count,), count / len(batch))
            weight[len(batch) :] = 0
            orders.append(filled[self.rank :: self.size])
            weights.append(weight[self.rank :: self.size])
        weight = torch.cat(weights)
        return Share(torch.cat(orders), None if bool((weight == 1).all()) else weight)


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
