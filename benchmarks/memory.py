"""Peak memory of a training step, measured in a process of its own."""

from __future__ import annotations

import gc
import multiprocessing
import resource
import sys
from pathlib import Path
from typing import NamedTuple

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
    Case("lastlayer", DENSE, Size(128, 640, 10)),
    Case("linear", KRONECKER, Size(128, 2048, 1000)),
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
            "peak_MB": float("nan"),
            "peak/parameters": float("nan"),
            "target": f"≤ {target:g}" if target else "",
            "verdict": "",
        }
        rows.append(row)
        if library == "vbll":
            obstacle = vbll_obstacle(model, size) if with_vbll else "vbll left out"
            if obstacle:
                row["verdict"] = f"not run: {obstacle}"
                continue
        parameters, peak = in_own_process(library, model, size)
        row["parameters_MB"], row["peak_MB"] = parameters / 1e6, peak / 1e6
        row["peak/parameters"] = peak / parameters
        if target:
            row["verdict"] = "met" if peak <= target * parameters else "MISSED"
    return rows


def in_own_process(library: str, model: Model, size: Size) -> tuple[int, int]:
    """Bytes of the parameters, and of the peak above what there was before the head was built."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measure, (library, model, size))


def _measure(library: str, model: Model, size: Size) -> tuple[int, int]:
    torch.set_num_threads(1)
    # A small head of the same kind first, so that the code of libraries, the threads of autograd
    # and the allocator's own tables are there before and not counted.
    warm_up = make(library, model, WARM_UP)
    for _ in range(3):
        warm_up.train()
    del warm_up
    gc.collect()
    before = _status("VmRSS")
    reset = _reset_peak()
    contender = make(library, model, size)
    for _ in range(2):
        contender.train()
    peak = _status("VmHWM") if reset else _maximum_resident()
    parameters = [p for p in contender.module.parameters() if p.requires_grad]
    return sum(p.numel() * p.element_size() for p in parameters), peak - before


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/self/status has no {field}")


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
