"""Speed and memory of the heads, as ratios against nn.Linear and against the vbll package.

Both sides run in one process, on one thread, by turns (A B A B …), on the same data. A training
step is forward, loss and backward to the parameters and to the features, gradients starting at
None. A prediction goes up to class probabilities, or to mean and variance. Times are medians
over single calls, of the thread's processor time, so that other processes count less; "by_minima"
is the same ratio from the fastest call of each side, and tells how far to trust the other.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import NamedTuple

import torch

# Whoever starts this file, `python benchmarks/heads.py` or `python -m benchmarks.heads`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.backbone import backbone_rows
from benchmarks.breakdown import profile_rows
from benchmarks.cancellation import cancellation_rows
from benchmarks.compiled import compiled_rows
from benchmarks.contenders import FLOAT_BYTES, Model, Size, import_vbll, make, vbll_obstacle
from benchmarks.memory import memory_rows
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import Timing, interleave, progress

SECTIONS = {
    "targets": "the promised ratios: measured, met or missed (about 4 minutes, most of it vbll's)",
    "memory": "peak memory of a training step, in units of the parameters",
    "scaling": "how training time grows with width N and outputs K, next to theory",
    "grid": "batch 32–512, width 50–2048, outputs 1–1000 (more than half an hour)",
    "backbone": "a head's share of a training step of WRN-28-10 (several minutes)",
    "profile": "where the time against nn.Linear goes: matrix products and the rest",
    "compiled": "training steps compiled by torch.compile, ours and nn.Linear's",
    "cancellation": "accuracy and time of the generative head's expanded quadratics",
}
DEFAULT_SECTIONS = "targets,memory,scaling"

REGRESSION = Model("regression", "dense")
DENSE = Model("discriminative", "dense")
DIAGONAL = Model("discriminative", "diagonal")
LOW_RANK = Model("discriminative", "low_rank")
KRONECKER = Model("discriminative", "kronecker")
GENERATIVE = Model("generative", "diagonal")


class Target(NamedTuple):
    """Against vbll at least so many times faster, against linear at most so many times slower."""

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


class Budget(NamedTuple):
    """Seconds for each row, and turns that each side gets at least."""

    seconds: float
    rounds: int


def compare(
    phase: str, model: Model, size: Size, libraries: list[str], budget: Budget
) -> dict[str, Timing]:
    """Time one phase of the same model in several libraries."""
    contenders = {library: make(library, model, size) for library in libraries}
    steps = {library: getattr(contender, phase) for library, contender in contenders.items()}
    return interleave(steps, budget.seconds, budget.rounds)


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


# ---------------------------------------------------------------------------------- scaling


class Growth(NamedTuple):
    """Which sizes to try, and the exponents of N and K that theory gives."""

    model: Model
    widths: tuple[int, ...]  # with `outputs_of_widths` outputs
    outputs_of_widths: int
    outputs: tuple[int, ...]  # with `width_of_outputs` features
    width_of_outputs: int
    exponent_of_width: str
    exponent_of_outputs: str


WIDTHS, OUTPUTS, BATCH = (256, 512, 1024, 2048), (10, 30, 100, 300, 1000), 128
GROWTHS = [
    Growth(DENSE, WIDTHS, 10, OUTPUTS, 128, "2", "1"),
    Growth(DIAGONAL, WIDTHS, 1000, OUTPUTS, 2048, "1", "1"),
    Growth(LOW_RANK, WIDTHS, 300, OUTPUTS, 640, "1", "1"),
    Growth(Model("discriminative", "shared"), WIDTHS, 10, OUTPUTS, 1024, "2", "0…1"),
    Growth(KRONECKER, WIDTHS, 10, OUTPUTS, 1024, "2", "0…1"),
    Growth(REGRESSION, WIDTHS, 10, OUTPUTS, 128, "2", "1"),
    Growth(Model("regression", "shared"), WIDTHS, 10, OUTPUTS, 1024, "2", "0…1"),
    Growth(GENERATIVE, WIDTHS, 1000, OUTPUTS, 2048, "1", "1"),
    Growth(Model("generative", "diagonal", "dense"), WIDTHS, 10, OUTPUTS, 1024, "2", "0…1"),
]


def scaling_rows(budget: Budget, quick: bool) -> list[Row]:
    """Exponents of training time by least squares on logarithms, and over the last step alone."""
    rows = []
    for growth in GROWTHS:
        model = growth.model
        by_width = [Size(BATCH, width, growth.outputs_of_widths) for width in growth.widths]
        by_outputs = [Size(BATCH, growth.width_of_outputs, count) for count in growth.outputs]
        for letter, sizes, theory in (
            ("N", by_width, growth.exponent_of_width),
            ("K", by_outputs, growth.exponent_of_outputs),
        ):
            sizes = sizes[:2] if quick else sizes
            times = []
            for size in sizes:
                progress(f"scaling: {model} {size}")
                timing = compare("train", model, size, ["lastlayer"], budget)["lastlayer"]
                times.append(timing.minimum)
            values = [size.width if letter == "N" else size.outputs for size in sizes]
            rows.append(
                {
                    "model": str(model),
                    "grows": letter,
                    "from": str(sizes[0]),
                    "to": str(sizes[-1]),
                    "first_ms": 1e3 * times[0],
                    "last_ms": 1e3 * times[-1],
                    "exponent": slope(values, times),
                    "at_the_end": slope(values[-2:], times[-2:]),
                    "theory": theory,
                }
            )
    return rows


def slope(values: list[int], times: list[float]) -> float:
    """The least-squares exponent p of times ~ values^p."""
    x, y = [math.log(value) for value in values], [math.log(time) for time in times]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    products = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return products / sum((a - x_mean) ** 2 for a in x)


# ------------------------------------------------------------------------------------- grid

GRID_MODELS = [REGRESSION, DENSE, DIAGONAL, LOW_RANK, KRONECKER, GENERATIVE]
GRID_BATCHES, GRID_WIDTHS, GRID_OUTPUTS = (32, 128, 512), (50, 640, 2048), (1, 10, 100, 1000)
GRID_LIMIT = 10**9  # bytes of our own parameters


def grid_rows(budget: Budget, quick: bool, with_vbll: bool) -> list[Row]:
    """All three sides over a grid of sizes; vbll only where its tensors fit in memory."""
    sizes = [
        Size(batch, width, outputs)
        for batch in (GRID_BATCHES[:1] if quick else GRID_BATCHES)
        for width in (GRID_WIDTHS[:1] if quick else GRID_WIDTHS)
        for outputs in (GRID_OUTPUTS[:2] if quick else GRID_OUTPUTS)
    ]
    rows = []
    for model in GRID_MODELS:
        for size in sizes:
            if (size.outputs == 1) != (model.head == "regression"):
                continue  # regression with one output, classification with at least two classes
            factors = size.outputs * size.width**2 // 2 * FLOAT_BYTES
            if model.covariance == "dense" and factors > GRID_LIMIT:
                continue
            obstacle = vbll_obstacle(model, size) if with_vbll else "vbll left out"
            for phase in ("train", "predict"):
                progress(f"grid: {phase} {model} {size}")
                libraries = ["lastlayer", "linear", *([] if obstacle else ["vbll"])]
                timings = compare(phase, model, size, libraries, budget)
                times = {library: timing.median for library, timing in timings.items()}
                vbll = times.get("vbll", math.nan)
                rows.append(
                    {
                        "phase": phase,
                        "model": str(model),
                        "size": str(size),
                        "ours_ms": 1e3 * times["lastlayer"],
                        "linear_ms": 1e3 * times["linear"],
                        "vbll_ms": 1e3 * vbll,
                        "ours/linear": times["lastlayer"] / times["linear"],
                        "vbll/ours": vbll / times["lastlayer"],
                        "remark": obstacle or "",
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
        if arguments.json:  # after every section, so that an interruption loses only one
            write_json(arguments.json, config, about, results)


if __name__ == "__main__":
    main()
