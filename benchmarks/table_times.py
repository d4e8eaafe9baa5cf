"""Processor time of `LastLayerRegressor` and CatBoost by the number of rows, with NLL beside.

Of the simulated table of `benchmarks/estimators.py`, whose noise grows with a column; training and
predicting a quarter as many rows. Both run once before on a small table, so that what they do but
once in a process is not counted, and they take turns.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

# Whoever starts this file, as a script or by `python -m benchmarks.table_times`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.estimators import METHODS, measured, simulated
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress

OURS, THEIRS = "LastLayerRegressor", "CatBoostRegressor"


def compared(num_rows: int, repetitions: int) -> Row:
    """Processor time and NLL of both, means over repetitions, which have other splits."""
    data = simulated(num_rows * 5 // 4)
    runs: dict[str, list[dict[str, float]]] = {OURS: [], THEIRS: []}
    for seed in range(repetitions):
        for method, found in runs.items():
            progress(f"{num_rows} rows, repetition {seed}, {method}")
            found.append(measured(METHODS[method], data, seed))
    mean = {
        (method, name): sum(run[name] for run in found) / repetitions
        for method, found in runs.items()
        for name in ("seconds", "nll")
    }
    return {
        "rows": num_rows,
        "seconds": mean[OURS, "seconds"],
        "catboost_seconds": mean[THEIRS, "seconds"],
        "ratio": mean[OURS, "seconds"] / mean[THEIRS, "seconds"],
        "nll": mean[OURS, "nll"],
        "catboost_nll": mean[THEIRS, "nll"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="1000,10000,50000,200000", help="with commas")
    parser.add_argument("--repetitions", type=int, default=2, help="(default: 2)")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for method in (OURS, THEIRS):
        measured(METHODS[method], simulated(500), 0)
    rows = [compared(int(count), arguments.repetitions) for count in arguments.rows.split(",")]
    print_table("Processor time", rows)
    if arguments.json:
        config = {"repetitions": arguments.repetitions, "threads": 1}
        write_json(arguments.json, config, environment(), {"rows": rows})


if __name__ == "__main__":
    main()
