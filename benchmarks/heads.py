"""Speed and memory of the heads, as ratios against nn.Linear and against the vbll package.

Both sides run in one process, on one thread, interleaved (A B A B …), on the same data. A training
step is forward, loss and backward to the parameters and to the features, with gradients initially
None. A prediction goes up to class probabilities, or to mean and variance. Times are medians over
single calls, of the thread's processor time, so that other processes count less; "by_minima" is
the ratio of the fastest calls, and tells how reliable the ratio of medians is.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import torch

# Whoever starts this file, `python benchmarks/heads.py` or `python -m benchmarks.heads`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.backbone import backbone_rows
from benchmarks.breakdown import profile_rows
from benchmarks.cancellation import cancellation_rows
from benchmarks.comparison import (
    DENSE,
    DIAGONAL,
    GENERATIVE,
    KRONECKER,
    LOW_RANK,
    REGRESSION,
    Budget,
    compare,
)
from benchmarks.compiled import compiled_rows
from benchmarks.contenders import Model, Size, import_vbll
from benchmarks.grid import grid_rows, predict_rows, predict_summary
from benchmarks.memory import memory_rows
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.scaling import scaling_rows
from benchmarks.timing import progress

SECTIONS = {
    "targets": "the promised ratios: measured, met or missed (about 4 minutes, most of it vbll's)",
    "memory": "peak memory of a training step, in units of the parameters",
    "scaling": "how training time grows with width N and outputs K, next to theory",
    "grid": "batch 32–512, width 50–2048, outputs 1–1000 (more than half an hour)",
    "predict": "class probabilities over the same grid (ten minutes, most of it vbll's)",
    "backbone": "a head's share of a training step of WRN-28-10 (several minutes)",
    "profile": "where the time against nn.Linear goes: matrix products and the rest",
    "compiled": "training steps compiled by torch.compile, ours and nn.Linear's",
    "cancellation": "accuracy and time of the generative head's expanded quadratics",
}
DEFAULT_SECTIONS = "targets,memory,scaling"


class Target(NamedTuple):
    """The minimum speed-up against vbll, or the maximum slow-down against linear."""

    phase: str
    model: Model
    size: Size
    rival: str
    factor: float


TARGETS = [
    Target("train", DENSE, Size(128, 640, 10), "vbll", 70),
    Target("train", DENSE, Size(128, 128, 10), "vbll", 40),
    Target("train", DIAGONAL, Size(128, 640, 100), "vbll", 8),
    Target("train", LOW_RANK, Size(128, 640, 100), "vbll", 24),
    Target("train", GENERATIVE, Size(128, 640, 100), "vbll", 25),
    Target("train", REGRESSION, Size(128, 640, 1), "vbll", 60),
    Target("train", REGRESSION, Size(32, 50, 1), "vbll", 3),
    Target("predict", DENSE, Size(128, 640, 10), "vbll", 100),
    Target("train", GENERATIVE, Size(128, 640, 1000), "linear", 3),
    Target("train", KRONECKER, Size(128, 2048, 1000), "linear", 4),
]


def target_rows(budget: Budget, quick: bool, with_vbll: bool) -> list[Row]:
    """The promised ratios; quick skips those in which one step of vbll takes many seconds."""
    rows = []
    for phase, model, size, rival, factor in TARGETS:
        if rival == "vbll" and not with_vbll:
            continue
        if quick and rival == "vbll" and model.covariance == "dense" and size.outputs > 1:
            continue
        progress(f"targets: {phase} {model} {size} against {rival}")
        timings = compare(phase, model, size, ["lastlayer", rival], budget)
        ours, theirs = timings["lastlayer"], timings[rival]
        at_least = rival == "vbll"
        ratio, of_minima = theirs.median / ours.median, theirs.minimum / ours.minimum
        if not at_least:
            ratio, of_minima = 1 / ratio, 1 / of_minima
        met = ratio >= factor if at_least else ratio <= factor
        rows.append(
            {
                "phase": phase,
                "model": str(model),
                "size": str(size),
                "against": rival,
                "ours_ms": 1e3 * ours.median,
                "theirs_ms": 1e3 * theirs.median,
                "ratio": ratio,
                "by_minima": of_minima,
                "target": f"{'≥' if at_least else '≤'} {factor:g}",
                "verdict": "met" if met else "MISSED",
                "calls": f"{ours.calls}/{theirs.calls}",
            }
        )
    return rows


# ------------------------------------------------------------------------------ command line


def parse_arguments() -> argparse.Namespace:
    listing = "\n".join(f"  {name:13} {text}" for name, text in SECTIONS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"""sections:
{listing}

examples:
  python benchmarks/heads.py                              what is promised, memory, growth
  python benchmarks/heads.py --quick                      does it run? seconds; numbers mean little
  python benchmarks/heads.py --sections targets --json targets.json
  python benchmarks/heads.py --sections grid,backbone     the long ones
  python benchmarks/heads.py --without-vbll               without the peers extra""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--sections",
        default=DEFAULT_SECTIONS,
        help=f"what to measure, separated by commas (default: {DEFAULT_SECTIONS})",
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: few sizes and repeats")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="time for each row of a table (default: 3)"
    )
    parser.add_argument("--without-vbll", action="store_true", help="leave that package out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    arguments.sections = arguments.sections.split(",")
    for name in arguments.sections:
        if name not in SECTIONS:
            parser.error(f"no section {name!r}; choose from {', '.join(SECTIONS)}")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    quick, with_vbll = arguments.quick, not arguments.without_vbll
    if with_vbll:
        import_vbll()  # fail now rather than in the middle
    budget = Budget(0.05, 2) if quick else Budget(arguments.seconds, 3)
    short = Budget(budget.seconds / 5, 2)  # for the many rows of grid and scaling
    measure = {
        "targets": lambda: target_rows(budget, quick, with_vbll),
        "memory": lambda: memory_rows(quick, with_vbll),
        "scaling": lambda: scaling_rows(short, quick),
        "grid": lambda: grid_rows(short, quick, with_vbll),
        "predict": lambda: predict_rows(short, quick, with_vbll),
        "backbone": lambda: backbone_rows(quick, with_vbll),
        "profile": lambda: profile_rows(quick),
        "compiled": lambda: compiled_rows(4 * budget.seconds, quick),
        "cancellation": lambda: cancellation_rows(quick),
    }
    about = environment()
    print("\n".join(f"{name:14}{value}" for name, value in about.items()))
    config = {key: str(value) for key, value in vars(arguments).items()}
    results = {}
    for name in arguments.sections:
        results[name] = measure[name]()
        print_table(f"{name}: {SECTIONS[name].split(' (')[0]}", results[name])
        if name == "predict":
            print_table(
                "predict: lowest, middle and highest ratios", predict_summary(results[name])
            )
        if arguments.json:  # after every section, so that an interruption loses only one
            write_json(arguments.json, config, about, results)


if __name__ == "__main__":
    main()
