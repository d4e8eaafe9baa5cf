"""What a prior of the temperature costs and saves, by the number of examples that set it.

Softmax networks as in posttrained.py. Their temperature is set by some of the held-out data, forty
times at random, and judged by the rest of them: rows have the mean NLL there above that of the best
temperature of all held-out data, by σ, the prior standard deviation of log τ.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

# Whoever starts this file, `python benchmarks/temperatures.py` or with -m.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.posttrained import trained
from benchmarks.problems import R_TABLES, Problem, imdb, of_r, ratings, tables
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress

PRIORS = (0.25, 0.5, 0.7, 1.0, 1.5, 2.0, math.inf)
COUNTS = (10, 20, 50, 200)
DRAWS = 40
LOG_TEMPERATURES = torch.linspace(-4.6, 4.6, 185)  # 0.01 to 100


def measure(problem: Problem, seed: int, epochs: int) -> list[Row]:
    progress(f"{problem.name}, seed {seed}")
    train, (inputs, labels) = problem.split(seed)
    network = trained(problem, train, seed, epochs)
    with torch.no_grad():
        logits = network(inputs)
    scaled = logits / LOG_TEMPERATURES.exp()[:, None, None]
    losses = torch.stack([F.cross_entropy(one, labels, reduction="none") for one in scaled])
    best = float(losses.mean(-1).min())
    about = {"data": problem.name, "seed": seed}
    rows: list[Row] = [
        about | {"examples": 0, "stddev": "0", "excess": float(losses[92].mean()) - best}
    ]
    for count in COUNTS:
        if 2 * count > len(labels):
            continue
        generator = torch.Generator().manual_seed(seed)
        excess = dict.fromkeys(PRIORS, 0.0)
        for _ in range(DRAWS):
            order = torch.randperm(len(labels), generator=generator)
            seen, rest = losses[:, order[:count]].sum(-1), losses[:, order[count:]].mean(-1)
            for stddev in PRIORS:
                chosen = (seen + LOG_TEMPERATURES.square() / (2 * stddev**2)).argmin()
                excess[stddev] += (float(rest[chosen]) - best) / DRAWS
        rows += [
            about | {"examples": count, "stddev": f"{stddev:g}", "excess": value}
            for stddev, value in excess.items()
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="""examples:
  python benchmarks/temperatures.py --quick        does it run? seconds
  LASTLAYER_DATA=data python benchmarks/temperatures.py --json results/temperatures.json""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--epochs", type=int, default=100, help="of training (default: 100)")
    parser.add_argument("--seeds", type=int, default=3, help="of data and weights (default: 3)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one table, two epochs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    found = tables()
    if arguments.quick:
        arguments.epochs, arguments.seeds, found = 2, 1, found[1:2]
    else:
        found += of_r(R_TABLES)
        if "LASTLAYER_DATA" in os.environ:
            folder = Path(os.environ["LASTLAYER_DATA"])
            found = [*imdb(folder), *ratings(folder), *found]
    rows = [
        row
        for problem in found
        for seed in range(arguments.seeds)
        for row in measure(problem, seed, arguments.epochs)
    ]
    if arguments.json:
        about = {**environment(), "seconds": time.perf_counter() - start}
        write_json(arguments.json, vars(arguments), about, {"temperatures": rows})
    print_table("NLL above that of the best temperature", rows)


if __name__ == "__main__":
    main()
