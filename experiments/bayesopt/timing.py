"""Seconds of a round as data grow: `python -m experiments.bayesopt.timing`.

Processor time on one thread, of fitting and of choosing ten points on Hartmann-6, by methods in
turn on the same data. What has a record is not measured again.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import torch

from ..harness import records
from .methods import METHODS
from .tasks import OptimisationTask

SIZES = (100, 200, 500, 1000, 2000)
TIMED = ("ours", "ours-continual", "gp")
RECORDED = Path("results/bayesopt/timing.jsonl")
IDENTITY = ("method", "num_points")


def measure(name: str, size: int) -> dict[str, Any]:
    """The record of one round, after one of ten points fewer."""
    task = OptimisationTask(seed=0, problem="hartmann")
    method = METHODS[name].configured("hartmann")
    torch.manual_seed(0)
    points = torch.rand(size, task.about.num_inputs, dtype=torch.float64)
    values = task.about.make(0)(points)
    with warnings.catch_warnings(action="ignore"):
        state = None
        if name == "ours-continual":
            _, state = method.choose(task, points[:-10], values[:-10], None)
        begun = time.process_time()
        method.choose(task, points, values, state)
        seconds = time.process_time() - begun
    return {
        "config": {"method": name, "num_points": size, "seed": 0},
        "metrics": {"processor_seconds": round(seconds, 3)},
        "versions": records.versions(("botorch", "gpytorch", "scipy")),
        "time": records.now(),
    }


def main(path: Path = RECORDED, sizes: tuple[int, ...] = SIZES) -> None:
    """Measure what has no record."""
    torch.set_num_threads(1)
    known = {tuple(r["config"][n] for n in IDENTITY) for r in records.read(path, IDENTITY)}
    jobs = [(name, size) for size in sizes for name in TIMED if (name, size) not in known]
    for name in {name for name, _ in jobs}:
        measure(name, 20)  # what is imported and compiled at the first call
    for name, size in jobs:
        records.append(path, [measure(name, size)])


if __name__ == "__main__":
    main()
