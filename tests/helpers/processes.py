"""Two processes that compute together."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from filelock import FileLock
from torch.multiprocessing.spawn import start_processes

NUM_PROCESSES = 2
PATIENCE = timedelta(seconds=60)  # of a process that waits for the other


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that `make` has filled, once for all workers of pytest-xdist, which share tests."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    done = root / f"{name}.done"
    with FileLock(root / f"{name}.lock"):
        if not done.exists():
            folder = Path(tempfile.mkdtemp(prefix=name, dir=root))
            make(folder)
            done.write_text(str(folder))
    return Path(done.read_text())


def run_together(work: Callable[..., None], folder: Path, *args: Any, timeout: float = 120) -> None:
    """Call `work(rank, folder, *args)` on two processes of one group; raises what they raise.

    They are forked from a server that has imported torch already, which takes seconds.
    """
    multiprocessing.set_forkserver_preload(["lastlayer", "tests.helpers.processes"])
    processes = start_processes(
        _joined, (work, folder, *args), NUM_PROCESSES, join=False, start_method="forkserver"
    )
    deadline = time.monotonic() + timeout
    try:
        while not processes.join(timeout=0.1):
            assert time.monotonic() < deadline, f"no result within {timeout} seconds"
    finally:
        for process in processes.processes:
            process.kill()


def _joined(rank: int, work: Callable[..., None], folder: Path, *args: Any) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=NUM_PROCESSES,
        timeout=PATIENCE,
    )
    work(rank, folder, *args)
    dist.barrier()  # a process that leaves first may end the other
    dist.destroy_process_group()
