"""Peak memory of a training step, measured in a process of its own.

Allocated is what the tensors need: the parameters, and the most that torch held beside them at
any moment of a step, as its profiler counts. Resident is what the process grew by over two steps;
it includes what the C library's allocator keeps or loses to fragmentation, and varies by tens of
megabytes from run to run.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .contenders import Model, Size, make, vbll_obstacle
from .report import Row
from .timing import progress

WARM_UP = Size(batch=8, width=160, outputs=4)  # wide enough for more than one triangular block


class Case(NamedTuple):
    """What is measured, and how many times the parameters' size it may take."""

    library: str
    model: Model
    size: Size
    target: float | None = None


DENSE = Model("discriminative", "dense")
DIAGONAL = Model("discriminative", "diagonal")
GENERATIVE = Model("generative", "diagonal")
KRONECKER = Model("discriminative", "kronecker")
CASES = [
    Case("lastlayer", DENSE, Size(128, 640, 100), target=4),
    Case("vbll", DENSE, Size(128, 640, 100)),
    Case("lastlayer", DENSE, Size(128, 640, 10)),
    Case("lastlayer", DIAGONAL, Size(128, 640, 1000)),
    Case("vbll", DIAGONAL, Size(128, 640, 1000)),
    Case("lastlayer", GENERATIVE, Size(128, 640, 1000)),
    Case("vbll", GENERATIVE, Size(128, 640, 1000)),
    Case("lastlayer", KRONECKER, Size(128, 2048, 1000)),
    Case("linear", KRONECKER, Size(128, 2048, 1000)),
]
QUICK_CASES = [
    Case("lastlayer", DENSE, Size(128, 160, 10)),
    Case("linear", KRONECKER, Size(128, 640, 10)),
]


def memory_rows(quick: bool, with_vbll: bool) -> list[Row]:
    """Peak memory of every case; vbll is not run where its largest tensor would be too large."""
    rows = []
    for library, model, size, target in QUICK_CASES if quick else CASES:
        progress(f"memory: {library} {model} {size}")
        row: Row = {
            "side": library,
            "model": f"nn.Linear ({model.head})" if library == "linear" else str(model),
            "size": str(size),
            "parameters_MB": float("nan"),
            "allocated_MB": float("nan"),
            "allocated/parameters": float("nan"),
            "resident_MB": float("nan"),
            "target": f"≤ {target:g}" if target else "",
            "verdict": "",
        }
        rows.append(row)
        if library == "vbll":
            obstacle = vbll_obstacle(model, size) if with_vbll else "vbll left out"
            if obstacle:
                row["verdict"] = f"not run: {obstacle}"
                continue
        parameters, allocated, resident = in_own_process(library, model, size)
        row["parameters_MB"], row["resident_MB"] = parameters / 1e6, resident / 1e6
        row["allocated_MB"], row["allocated/parameters"] = allocated / 1e6, allocated / parameters
        if target:
            row["verdict"] = "met" if allocated <= target * parameters else "MISSED"
    return rows


def in_own_process(library: str, model: Model, size: Size) -> tuple[int, int, int]:
    """Bytes of the parameters, allocated at the peak, and resident at the peak."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measure, (library, model, size))


def _measure(library: str, model: Model, size: Size) -> tuple[int, int, int]:
    torch.set_num_threads(1)
    # A small head of the same kind first, so that the code of libraries, the threads of autograd
    # and the allocator's own tables are there before and not counted.
    warm_up = make(library, model, WARM_UP)
    for _ in range(3):
        warm_up.train()
    del warm_up
    gc.collect()
    before = status("VmRSS")
    reset = _reset_peak()
    contender = make(library, model, size)
    for _ in range(2):
        contender.train()
    peak = status("VmHWM") if reset else _maximum_resident()
    trained = [p for p in contender.module.parameters() if p.requires_grad]
    parameters = sum(p.numel() * p.element_size() for p in trained)
    for parameter in trained:
        parameter.grad = None
    return parameters, parameters + allocated(contender.train), peak - before


def allocated(step: Callable[[], object]) -> int:
    """The most that a step holds at once, of what it allocates itself."""
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    # the profiler's own tables attribute most changes to operators; the raw events have them all
    results: Any = profile.profiler
    changes = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    changes.sort(key=lambda event: event.start_ns())
    held = itertools.accumulate(event.nbytes() for event in changes)
    return max(held)


def status(field: str, process: int | str = "self") -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/{process}/status has no {field}")


def _reset_peak() -> bool:
    """Let VmHWM start again from the present; Linux, where permitted."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _maximum_resident() -> int:
    """The peak since the process started: no less than the one asked for."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
