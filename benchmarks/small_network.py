"""The small network of the image experiment, trained on every training image of CIFAR-10.

The experiment holds 5 % of the images out of all training, for what methods choose by data. Here
nothing is chosen, and the network has them too. All else is the recipe of the experiment, with a
softmax or another of its last layers. Wall time is that of this process: of an interrupted run,
which goes on from its checkpoint, it is only that of the last part.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path

import torch

# Whoever starts this file, `python benchmarks/small_network.py` or as a module.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.report import Row, environment, print_table, write_json
from experiments.harness.allocation import keep_freed_memory
from experiments.images.methods import methods_of
from experiments.images.task import BATCH_SIZE, ImageTask, task

METHODS = ("dnn", "d_vbll", "g_vbll")


def every_image(seed: int) -> ImageTask:
    """CIFAR-10, with the held-out images among those to train on."""
    held = task("cifar10", "small", seed)
    pairs = zip(held.train, held.held_out, strict=True)
    images, labels = (torch.cat(pair) for pair in pairs)
    return dataclasses.replace(held, train=(images, labels), outside={})


def measure(method: str, epochs: int, seed: int, checkpoint: Path | None) -> Row:
    """Train, and test on all test images."""
    problem = every_image(seed)
    configured = methods_of("small")[method].configured("cifar10", epochs=epochs)
    begun, used = time.perf_counter(), time.process_time()
    ((model, _),) = configured.train([problem], checkpoint)
    row = {"minutes": (time.perf_counter() - begun) / 60}
    row["processor_minutes"] = (time.process_time() - used) / 60
    metrics = ll.metrics.evaluate(model, problem.test, batch_size=BATCH_SIZE, progress=False)
    about = {"method": method, "images": len(problem.train[0]), "epochs": epochs, "seed": seed}
    return about | {name: metrics[name] for name in ("accuracy", "nll", "ece")} | row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", default="dnn", choices=METHODS)
    parser.add_argument("--epochs", type=int, default=18)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--checkpoint", type=Path, help="folder to go on from; none by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    rows = []
    for seed in range(arguments.seeds):
        folder = arguments.checkpoint and arguments.checkpoint / str(seed)
        rows.append(measure(arguments.method, arguments.epochs, seed, folder))
    print_table("The small network on all 50,000 training images", rows)
    if arguments.json:
        write_json(arguments.json, vars(arguments), environment(), {"small_network": rows})


if __name__ == "__main__":
    main()
