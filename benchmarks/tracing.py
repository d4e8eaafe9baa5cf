"""What tracing the step of many models gains: `fit_many` and `crossfit`, with it and without.

Both sides are whole calls, interleaved in one process, so that the cost of tracing is included.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

# Whoever starts this file, `python benchmarks/tracing.py` or `python -m benchmarks.tracing`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.seeds import BATCH, NUM_EXAMPLES, NUM_VALIDATION, make_data, make_model
from benchmarks.timing import progress
from lastlayer.training import many

TARGET = 1.5  # below it tracing would not be worth its code


def fit_many(num_models: int, epochs: int) -> None:
    """AdamW, with validation every ten epochs."""
    ll.fit_many(
        [make_model(seed) for seed in range(num_models)],
        [make_data(seed, NUM_EXAMPLES) for seed in range(num_models)],
        [make_data(1000 + seed, NUM_VALIDATION) for seed in range(num_models)],
        epochs=epochs,
        batch_size=BATCH,
        validate_every=10,
        progress=False,
    )


def crossfit(num_models: int, epochs: int) -> None:
    """SOAP, on five folds of each problem."""
    makes = [functools.partial(_make, seed) for seed in range(num_models // 5)]
    data = [make_data(seed, NUM_EXAMPLES) for seed in range(len(makes))]
    ll.crossfit_many(
        makes, data, epochs=epochs, shortest=epochs // 4, batch_size=BATCH, progress=False
    )


def _make(seed: int, _: object) -> ll.Network:
    return make_model(seed)


def measure(train: Callable[[int, int], None], num_models: int, epochs: int, repeats: int) -> Row:
    """Processor time of this thread, the minimum of the repeats, on both sides."""
    sides = {"traced": many.UNTRACED, "untraced": math.inf}
    times = dict.fromkeys(sides, math.inf)
    try:
        for repeat in range(repeats):
            for side, untraced in sides.items():
                progress(f"{train.__name__}, {num_models} models, {side}, repeat {repeat}")
                many.UNTRACED = untraced  # type: ignore[assignment]
                start = time.thread_time()
                train(num_models, epochs)
                times[side] = min(times[side], time.thread_time() - start)
    finally:
        many.UNTRACED = sides["traced"]  # type: ignore[assignment]
    gain = times["untraced"] / times["traced"]
    return {
        "training": f"`{train.__name__}`, {'AdamW' if train is fit_many else 'SOAP'}",
        "models": num_models,
        "epochs": epochs,
        "traced_s": times["traced"],
        "untraced_s": times["untraced"],
        "gain": gain,
        "target": f"≥ {TARGET:g}",
        "verdict": "met" if gain >= TARGET else "MISSED",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, nargs="+", default=[5, 20], help="how many")
    parser.add_argument("--epochs", type=int, default=64, help="maximum number of epochs")
    parser.add_argument("--repeats", type=int, default=3, help="the minimum over them counts")
    parser.add_argument("--quick", action="store_true", help="does it run? numbers mean little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.quick:
        arguments.models, arguments.epochs, arguments.repeats = [5], 4, 1
    rows = [
        measure(train, count, arguments.epochs, arguments.repeats)
        for train in (fit_many, crossfit)
        for count in arguments.models
    ]
    print_table("Tracing the step of many models", rows)
    if arguments.json:
        config = {**vars(arguments), "json": str(arguments.json)}
        write_json(arguments.json, config, environment(), {"tracing": rows})


if __name__ == "__main__":
    main()
