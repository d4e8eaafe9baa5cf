"""Training steps with freed memory kept, and with glibc's own settings, in two processes.

The processes take turns, a step each, so that other load on the machine affects both alike.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch

# Whoever starts this file, `python benchmarks/allocation.py` or `python -m benchmarks.allocation`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from experiments.backbones import small
from experiments.harness.allocation import keep_freed_memory

SETTINGS = ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
LEARNING_RATE = 1e-3
WARM_UP = 5  # steps, after which freed memory has the sizes that are asked for


def image_network(precision: torch.dtype, batch_size: int) -> Callable[[], None]:
    """A step of the small network of the image experiment, with ten classes."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (batch_size, 3, 32, 32), dtype=torch.uint8, generator=generator)
    target = torch.arange(batch_size) % 10
    head = ll.DiscriminativeClassification(small.NUM_FEATURES, 10, num_data=batch_size)
    return _step(ll.Network(small.features(images), head), images, target, precision)


def generative_head(batch_size: int) -> Callable[[], None]:
    """A step of a generative head with 640 features and 1,000 classes."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(batch_size, 640, generator=generator)
    target = torch.randint(1000, (batch_size,), generator=generator)
    head = ll.GenerativeClassification(640, 1000, num_data=batch_size)
    head.observe(target)
    return _step(head, features, target, torch.float32)


STEPS: dict[str, Callable[[], Callable[[], None]]] = {
    "small image network, batch 512, bfloat16": lambda: image_network(torch.bfloat16, 512),
    "small image network, batch 128, float32": lambda: image_network(torch.float32, 128),
    "generative head, B128 N640 K1000": lambda: generative_head(128),
}


def _step(
    model: torch.nn.Module, inputs: torch.Tensor, target: torch.Tensor, precision: torch.dtype
) -> Callable[[], None]:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
            loss = model(inputs, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def work(name: str, kept: bool, parent: Connection) -> None:
    """Take a step whenever asked, and send its seconds."""
    if kept and not keep_freed_memory():
        parent.send(None)
        return
    torch.set_num_threads(1)
    step = STEPS[name]()
    for _ in range(WARM_UP):
        step()
    while parent.recv():
        begun = time.process_time()
        step()
        parent.send(time.process_time() - begun)


def measure(name: str, rounds: int) -> Row:
    """Processor seconds of a step on both sides: medians, and the median of their ratios."""
    context = multiprocessing.get_context("spawn")
    sides = []
    for kept in (False, True):
        mine, theirs = context.Pipe()
        process = context.Process(target=work, args=(name, kept, theirs))
        process.start()
        sides.append((process, mine))
    usual: list[float] = []
    keeping: list[float] = []
    for number in range(rounds):
        progress(f"{name}, round {number}")
        for seconds, (_, pipe) in zip((usual, keeping), sides, strict=True):
            pipe.send(True)
            taken = pipe.recv()
            if taken is None:
                raise SystemExit("this machine's C library is not glibc: there is nothing to set")
            seconds.append(taken)
    for process, pipe in sides:
        pipe.send(False)
        process.join()
    return {
        "step": name,
        "usual_s": statistics.median(usual),
        "kept_s": statistics.median(keeping),
        "gain": statistics.median(a / b for a, b in zip(usual, keeping, strict=True)),
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--rounds", type=int, default=15, help="steps of each process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    for setting in SETTINGS:
        os.environ.pop(setting, None)  # of the processes that are started
    rows = [measure(name, arguments.rounds) for name in arguments.steps]
    print_table("Freed memory", rows)
    if arguments.json:
        config = {**vars(arguments), "json": str(arguments.json)}
        write_json(arguments.json, config, environment(), {"allocation": rows})


if __name__ == "__main__":
    main()
