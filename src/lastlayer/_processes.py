"""Processes that work together, as started by `torchrun`, and sums over what each has seen."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

AnyProcesses = TypeVar("AnyProcesses", bound="Processes")


class Processes:
    """All processes of a run: one, unless it was started by `torchrun`.

    Args:
        device: for what the processes tell each other.
    """

    def __init__(self, device: torch.device) -> None:
        together = dist.is_available() and dist.is_initialized()
        if not together and "TORCHELASTIC_RUN_ID" in os.environ:  # started by torchrun
            _join("nccl" if device.type == "cuda" else "gloo")
            together = True
        self.device = device
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1

    @classmethod
    def of(cls: type[AnyProcesses], distributed: bool, device: torch.device | None) -> AnyProcesses:
        """All processes, which must be several, or this one alone."""
        device = torch.device("cpu") if device is None else device
        if distributed:
            found = cls(device)
            if found.size == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
                raise ValueError(
                    "distributed=True is for several processes; start the program with torchrun, "
                    "or call torch.distributed.init_process_group first"
                )
            return found
        alone = cls.__new__(cls)
        alone.device, alone.rank, alone.size = device, 0, 1
        return alone

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

    def objects(self, value: Any) -> list[Any]:
        """What every process has, in their order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def positions(self, count: int) -> Tensor:
        """Where the rows of this process stand among all rows, which processes have in turn."""
        counts = self.each(count)
        rows = torch.arange(count)
        earlier = sum((rows.clamp(max=other) for other in counts), torch.zeros_like(rows))
        return earlier + sum((rows < other).long() for other in counts[: self.rank])

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Where `summed` and `merged` are over all processes, each of which has some rows."""
        token = _SHARING.set(self if self.size > 1 else None)
        try:
            yield
        finally:
            _SHARING.reset(token)


_SHARING: ContextVar[Processes | None] = ContextVar("sharing", default=None)


def is_sharing() -> bool:
    """Whether other processes have other rows."""
    return _SHARING.get() is not None


def summed(tensor: Tensor) -> Tensor:
    """A sum over rows, of all processes that share them; itself where there is one process."""
    processes = _SHARING.get()
    if processes is None:
        return tensor
    return processes.sum(tensor.to(processes.device, copy=True)).to(tensor.device)


def num_rows(count: int) -> int:
    """The number of rows, of all processes that share them."""
    processes = _SHARING.get()
    return count if processes is None else sum(processes.each(count))


def merged(statistics: Any) -> Any:
    """Statistics that can be merged, of all processes that share the rows."""
    processes = _SHARING.get()
    if processes is None:
        return statistics
    return functools.reduce(lambda one, two: one.merge(two), processes.objects(statistics))


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
