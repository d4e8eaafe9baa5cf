"""The figures and numbers of docs/choosing.md: what prior, covariance, bound and head do.

    python docs/figures/choosing.py            # about a minute on one core
    python docs/figures/choosing.py --quick    # few epochs and seeds, to see that everything works

The page itself is made by

    python docs/figures/choosing.py --output docs/images --json results/choosing.json
    python benchmarks/tables.py

Everything is seeded. Numbers are means over seeds, each with its own data and network; figures
show the first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

# Whoever starts this file, `python docs/figures/choosing.py` or `python -m docs.figures.choosing`.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.report import environment, print_table, write_json
from docs.figures.classification import run_bounds, run_heads
from docs.figures.regression import run_regression
from docs.figures.runs import QUICK, Config, Sections


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = "folder of the figures (%(default)s)"
    parser.add_argument("--output", type=Path, default="choosing-output", metavar="DIR", help=where)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file of the numbers")
    parser.add_argument("--quick", action="store_true", help="few epochs and seeds")
    chosen = parser.parse_args(arguments)
    config = QUICK if chosen.quick else Config()
    chosen.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    start = time.process_time()
    sections: Sections = {}
    for run in (run_regression, run_bounds, run_heads):
        new = run(chosen.output, config)
        for title, rows in new.items():
            print_table(title, rows)
        sections |= new
    print(f"\nFigures in {chosen.output}")
    if chosen.json:
        about = environment() | {"processor_seconds": round(time.process_time() - start, 1)}
        del about["vbll"]  # not compared with
        write_json(chosen.json, asdict(config), about, sections)


if __name__ == "__main__":
    main()
