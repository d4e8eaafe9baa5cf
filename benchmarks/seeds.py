"""Many seeds of the paper's 2×50 regression network: trained as one, and one by one.

Both sides are whole calls of `fit`, with validation every ten epochs, interleaved in one process.
The batched side traces its step first, which takes a second or two however long the training is;
the steady ratio excludes that, as the difference of a long and a short training.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

# Whoever starts this file, `python benchmarks/seeds.py` or `python -m benchmarks.seeds`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress

NUM_EXAMPLES, NUM_VALIDATION, NUM_INPUTS = 720, 180, 8  # a thousand rows, split as in the paper
WIDTH, BATCH = 50, 32
TARGET = 8.0


def make_model(seed: int) -> ll.Network:
    torch.manual_seed(seed)
    backbone = nn.Sequential(
        *(nn.Linear(NUM_INPUTS, WIDTH), nn.LeakyReLU(), nn.Linear(WIDTH, WIDTH), nn.LeakyReLU())
    )
    return ll.Network(backbone, ll.Regression(WIDTH, 1, num_data=NUM_EXAMPLES))


def make_data(seed: int, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, NUM_INPUTS, generator=generator)
    noise = 0.1 * torch.randn(count, 1, generator=generator)
    return inputs, inputs[:, :1] ** 2 + inputs[:, 1:2] + noise


def measure(num_seeds: int, epochs: int, repeats: int) -> Row:
    """Processor time of this thread, the least of the repeats, on both sides."""
    train = [make_data(seed, NUM_EXAMPLES) for seed in range(num_seeds)]
    validation = [make_data(1000 + seed, NUM_VALIDATION) for seed in range(num_seeds)]
    options: dict[str, Any] = {"batch_size": BATCH, "validate_every": 10, "progress": False}

    def together(epochs: int) -> list[ll.Network]:
        models = [make_model(seed) for seed in range(num_seeds)]
        ll.fit_many(models, train, validation, epochs=epochs, **options)
        return models

    def one_by_one(epochs: int) -> list[ll.Network]:
        models = [make_model(seed) for seed in range(num_seeds)]
        for seed, model in enumerate(models):
            ll.fit(model, train[seed], validation[seed], epochs=epochs, seed=seed, **options)
        return models

    short, sides = max(1, epochs // 10), (together, one_by_one)
    for side in sides:  # imports and caches
        side(1)
    times: dict[tuple[str, int], float] = {}
    for repeat in range(repeats):
        for side in sides:
            for length in (short, epochs):
                progress(f"{num_seeds} seeds, {side.__name__}, {length} epochs, repeat {repeat}")
                key = (side.__name__, length)
                times[key] = min(times.get(key, float("inf")), _time(side, length))
    steady = {
        side.__name__: times[side.__name__, epochs] - times[side.__name__, short] for side in sides
    }
    whole = times["one_by_one", epochs] / times["together", epochs]
    return {
        "seeds": num_seeds,
        "epochs": epochs,
        "together_s": times["together", epochs],
        "one_by_one_s": times["one_by_one", epochs],
        "ratio": whole,
        "steady ratio": steady["one_by_one"] / steady["together"],
        "target": f"≥ {TARGET:g}" if num_seeds == 20 else "",
        "difference": difference(together(short), one_by_one(short)),
    }


def _time(side: Callable[[int], object], epochs: int) -> float:
    start = time.thread_time()
    side(epochs)
    return time.thread_time() - start


def difference(models: list[ll.Network], others: list[ll.Network]) -> float:
    """The largest between any two weights, in single precision."""
    pairs = zip(models, others, strict=True)
    return max(
        float((mine - other).detach().abs().max())
        for model, twin in pairs
        for mine, other in zip(model.parameters(), twin.parameters(), strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 20, 50], help="how many")
    parser.add_argument("--epochs", type=int, default=100, help="of the longer training")
    parser.add_argument("--repeats", type=int, default=3, help="the fastest of so many counts")
    parser.add_argument("--quick", action="store_true", help="does it run? numbers mean little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.quick:
        arguments.seeds, arguments.epochs, arguments.repeats = [3], 2, 1
    rows = [measure(count, arguments.epochs, arguments.repeats) for count in arguments.seeds]
    print_table("Training many seeds: together and one by one", rows)
    if arguments.json:
        config = {**vars(arguments), "json": str(arguments.json)}
        write_json(arguments.json, config, environment(), {"seeds": rows})


if __name__ == "__main__":
    main()
