"""How long `acquisition.select` takes to choose a batch from a large pool, by every method.

Features are given, 200,000 points of 512, and a head was fitted to a thousand labels. Times are of
the whole call: what the posterior says of the pool, and the choice of 256 points one after the
other. Processor seconds are those of all threads together.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

# Whoever starts this file, `python benchmarks/selecting.py` or `python -m benchmarks.selecting`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.report import Row, environment, print_table, write_json
from lastlayer.acquisition import select
from lastlayer.heads import Head

NUM_POOL, NUM_FEATURES, NUM_LABELLED, BATCH, NUM_CLASSES = 200_000, 512, 1_000, 256, 10
BOTH = ("lcmd", "bait", "batchbald", "epig", "bald", "max_variance", "entropy")
METHODS = {"numbers": BOTH, "10 classes": (*BOTH, "margin")}


def fitted(what: str, features: Tensor) -> Head:
    """A head fitted to labels of these features."""
    signal = features[:, :NUM_CLASSES]
    if what == "numbers":
        real = ll.Regression(NUM_FEATURES, num_data=len(features), bias=True)
        real.fit_exact(features, signal.sum(-1, keepdim=True))
        return real
    head = ll.DiscriminativeClassification(
        NUM_FEATURES, NUM_CLASSES, num_data=len(features), bias=True
    )
    head.fit_features(features, signal.argmax(-1))
    return head


def row(what: str, head: Head, labelled: Tensor, pool: Tensor, method: str) -> Row:
    """The time of one choice."""
    wall, processor = time.perf_counter(), time.process_time()
    select(head, labelled, pool, BATCH, method, progress=False)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return {
        "targets": what,
        "method": method,
        "seconds": round(wall, 1),
        "processor seconds": round(processor, 1),
    }


def measure(num_pool: int) -> list[Row]:
    """One row for each method and kind of target."""
    generator = torch.Generator().manual_seed(0)
    pool = torch.randn(num_pool, NUM_FEATURES, generator=generator) / NUM_FEATURES**0.5
    labelled = torch.randn(NUM_LABELLED, NUM_FEATURES, generator=generator) / NUM_FEATURES**0.5
    rows = []
    for what, methods in METHODS.items():
        head = fitted(what, labelled)
        for method in methods:
            rows.append(row(what, head, labelled, pool, method))
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=int, default=NUM_POOL, help="points of the pool")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = measure(arguments.pool)
    print_table(f"{BATCH} of {arguments.pool:,} points, {NUM_FEATURES} features", rows)
    if arguments.json:
        settings = {"pool": arguments.pool, "num_features": NUM_FEATURES, "batch": BATCH}
        write_json(arguments.json, settings, environment(), {"selecting": rows})


if __name__ == "__main__":
    main()
