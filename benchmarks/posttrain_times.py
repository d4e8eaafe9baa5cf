"""Time of post-training at the size of a pretrained network: every covariance, beside peers.

1,280 features of 3,500 examples in 10 classes: those of --features, or made up. A softmax layer is
trained on them, then a discriminative head solved from its weights, with a prior that is given
(variance √10/N); "with its prior" is the whole of `posttrain` with diagonal
covariances, which first looks for the variance of the prior by held-out parts. Peers are the
training of the layer itself and laplace-torch's Kronecker-factored fit, with its prior tuned. Times
are of the processor, with one thread, the median of --repeats rounds that are interleaved.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Whoever starts this file, `python benchmarks/posttrain_times.py` or with -m.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.posttrained import laplace
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress

COVARIANCES = ("diagonal", "low_rank", "shared", "kronecker", "dense")
TARGETS = dict.fromkeys(COVARIANCES, 5.0) | {"dense": 20.0}  # seconds
WITH_PRIOR = "diagonal, with its prior"
SIZES = (3500, 1280, 10)  # examples, features, classes


def made_up(num_data: int, num_features: int, num_classes: int) -> tuple[Tensor, Tensor]:
    """Rectified features of unequal size, and labels that they tell in part."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(num_classes, (num_data,), generator=generator)
    centres = torch.randn(num_classes, num_features, generator=generator)
    noise = torch.randn(num_data, num_features, generator=generator)
    scales = torch.logspace(-1.0, 0.0, num_features)
    return ((0.15 * centres[labels] + noise) * scales).relu(), labels


def layer_of(features: Tensor, labels: Tensor, num_classes: int, epochs: int) -> nn.Linear:
    """A softmax layer, trained by AdamW."""
    torch.manual_seed(0)
    layer = nn.Linear(features.shape[1], num_classes)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3, weight_decay=0.01)
    for _ in range(epochs):
        for rows in torch.randperm(len(labels)).split(128):
            optimizer.zero_grad()
            F.cross_entropy(layer(features[rows]), labels[rows]).backward()
            optimizer.step()
    return layer


def measure(data: tuple[Tensor, Tensor], num_classes: int, epochs: int, repeats: int) -> list[Row]:
    features, labels = data
    layer = layer_of(features, labels, num_classes, epochs)
    network = nn.Sequential(nn.Identity(), layer)
    num_features = features.shape[1]
    prior = ll.Prior(variance=10**0.5 / num_features, bias_variance=1.0)
    found: dict[str, ll.Network] = {}

    def posttrained(name: str, **options: Any) -> None:
        found[name] = ll.posttrain(network, data, progress=False, max_passes=200, **options)

    runs: dict[str, Callable[[], object]] = {
        "training the layer": lambda: layer_of(features, labels, num_classes, epochs),
        **{name: partial(posttrained, name, covariance=name, prior=prior) for name in COVARIANCES},
        WITH_PRIOR: partial(posttrained, WITH_PRIOR, covariance="diagonal"),
    }
    if importlib.util.find_spec("laplace") is not None:
        runs["laplace-torch, Kronecker"] = lambda: laplace(network, data, "kron")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            progress(name)
            clock = time.process_time()
            run()
            seconds[name].append(time.process_time() - clock)
    rows: list[Row] = []
    for name, values in seconds.items():
        row: Row = {"what": name, "seconds": median(values), "target": TARGETS.get(name, "")}
        row |= {"passes": "", "converged": ""}
        if name in found:
            about = found[name].posttraining
            row |= {"passes": about.passes, "converged": about.converged}
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="""examples:
  python benchmarks/posttrain_times.py --quick       does it run? seconds
  python benchmarks/posttrain_times.py --features cifar10.pt --json results/posttrain-times.json""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--features", type=Path, help="a pair (features, labels) by torch.save")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--epochs", type=int, default=30, help="of the layer (default: 30)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: 200 examples")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = SIZES
    if arguments.quick:
        sizes, arguments.repeats, arguments.epochs = (200, 16, 3), 1, 2
    data = made_up(*sizes)
    if arguments.features is not None:
        stored: tuple[Tensor, Tensor] = torch.load(arguments.features)
        data = stored[0][: sizes[0]], stored[1][: sizes[0]]
    start = time.perf_counter()
    rows = measure(data, sizes[2], arguments.epochs, arguments.repeats)
    print_table(f"Processor seconds, {len(data[1])} × {data[0].shape[1]}, {sizes[2]} classes", rows)
    if arguments.json:
        config = {**vars(arguments), "features": arguments.features is not None}
        about = {**environment(), "seconds": time.perf_counter() - start}
        write_json(arguments.json, config, about, {"times": rows})


if __name__ == "__main__":
    main()
