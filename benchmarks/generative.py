"""How a generative head is fitted after training, by data that are held out from training.

A softmax network with one hidden layer of 128 rectified units, trained by AdamW, and generative
heads on its features; and a linear softmax layer on features of a pretrained network, which have
not seen the labels, and heads in its place. Held-out data are never test data of an experiment: of
IMDB they are other reviews of the training set. Rows have the mean over seeds of NLL, calibration
error (15 bins) and accuracy on held-out data, and seconds of the fit.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Whoever starts this file, `python benchmarks/generative.py` or `python -m benchmarks.generative`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.problems import WIDTH, Problem, imdb, stored, tables
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from lastlayer.heads import _discriminant
from lastlayer.metrics import expected_calibration_error

EPOCHS, LARGE_EPOCHS = 100, 10  # the latter from so many examples on:
LARGE = 5000
Fit = Callable[[ll.GenerativeClassification, Tensor, Tensor], None]


def closed_form(head: ll.GenerativeClassification, features: Tensor, target: Tensor) -> None:
    head.fit_exact(features, target, estimate_noise=True)


def by_labels(head: ll.GenerativeClassification, features: Tensor, target: Tensor) -> None:
    head.fit_features(features, target)


def always(unseen: bool) -> Fit:
    """`fit_features` that takes all features for unseen, or none."""

    def fit(head: ll.GenerativeClassification, features: Tensor, target: Tensor) -> None:
        with mock.patch.object(_discriminant, "_unseen", return_value=unseen):
            head.fit_features(features, target)

    return fit


def theorem_3(head: ll.GenerativeClassification, features: Tensor, target: Tensor) -> None:
    """The bound maximised by L-BFGS, from the fit by labels."""
    head.fit_features(features, target)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=30, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = head(features, target)
        loss.backward()
        return loss

    optimizer.step(closure)


CANDIDATES: dict[str, tuple[Any, Fit]] = {
    "closed form, diagonal": ("diagonal", closed_form),
    "closed form, dense": ("dense", closed_form),
    "leave-one-out": ("dense", always(True)),
    "prior of logits": ("dense", always(False)),
    "by labels, diagonal": ("diagonal", by_labels),
    "by labels, dense": ("dense", by_labels),
    "theorem 3, diagonal": ("diagonal", theorem_3),
}


def trained(problem: Problem, data: tuple[Tensor, Tensor], seed: int) -> nn.Sequential:
    """A softmax network; features of a pretrained one get a layer only."""
    torch.manual_seed(seed)
    (inputs, target), num_classes = data, int(problem.target.max()) + 1
    size = inputs.shape[1]
    if problem.name == "pretrained":
        network = nn.Sequential(nn.Identity(), nn.Linear(size, num_classes))
    else:
        hidden = nn.Sequential(nn.Linear(size, WIDTH), nn.ReLU())
        network = nn.Sequential(hidden, nn.Linear(WIDTH, num_classes))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.01)
    large = len(target) >= LARGE
    for _ in range(LARGE_EPOCHS if large else EPOCHS):
        for rows in torch.randperm(len(target)).split(256 if large else 32):
            optimizer.zero_grad()
            F.cross_entropy(network(inputs[rows]), target[rows]).backward()
            optimizer.step()
    return network


def scores(log_probs: Tensor, target: Tensor) -> list[float]:
    """NLL, calibration error and accuracy."""
    error = expected_calibration_error(log_probs.exp(), target)
    accuracy = (log_probs.argmax(-1) == target).float().mean()
    return [F.nll_loss(log_probs, target).item(), float(error), accuracy.item()]


def measure(problem: Problem, seeds: int) -> list[Row]:
    found: dict[str, list[list[float]]] = {name: [] for name in ("softmax", *CANDIDATES)}
    for seed in range(seeds):
        train, (inputs, target) = problem.split(seed)
        network = trained(problem, train, seed)
        with torch.no_grad():
            features, held_out = network[0](train[0]), network[0](inputs)
            found["softmax"].append([*scores(network(inputs).log_softmax(-1), target), 0.0])
        for name, (noise, fit) in CANDIDATES.items():
            progress(f"{problem.name}, seed {seed}, {name}")
            layer: Any = network[1]
            head = ll.GenerativeClassification(
                layer.in_features, layer.out_features, num_data=len(features), noise=noise
            )
            head.start_from(layer)
            start = time.process_time()
            fit(head, features, train[1])
            seconds = time.process_time() - start
            with torch.no_grad():
                found[name].append([*scores(head(held_out).log_probs(), target), seconds])
    rows: list[Row] = []
    for name, values in found.items():
        nll, error, accuracy, seconds = torch.tensor(values).mean(0).tolist()
        row: Row = {"data": problem.name, "T": problem.num_train, "N": features.shape[1]}
        row |= {"fit": name, "nll": nll, "ece": error, "accuracy": accuracy, "seconds": seconds}
        rows.append(row)
    return rows


def problems(arguments: argparse.Namespace) -> list[Problem]:
    if arguments.quick:
        return [problem for problem in tables() if problem.name == "wine"]
    found = tables()
    if "LASTLAYER_DATA" in os.environ:
        reviews = imdb(Path(os.environ["LASTLAYER_DATA"]))
        large = reviews[0]._replace(name="imdb, 20000", num_train=20000)
        found = [*reviews, large, *found]
    if arguments.features is not None:
        found.append(stored(arguments.features)._replace(num_train=3500, num_held_out=1000))
    return found


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=Path, help="of a pretrained network, with labels")
    parser.add_argument("--seeds", type=int, default=3, help="of data and weights (default: 3)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    start = time.perf_counter()
    rows: list[Row] = []
    for problem in problems(arguments):
        rows += measure(problem, 1 if problem.name == "pretrained" else arguments.seeds)
        if arguments.json:  # what is measured is kept, whatever happens next
            config = {**vars(arguments), "features": arguments.features is not None}
            about = {**environment(), "seconds": time.perf_counter() - start}
            write_json(arguments.json, config, about, {"posttrain": rows})
    print_table("Held-out scores of a generative head after training", rows)


if __name__ == "__main__":
    main()
