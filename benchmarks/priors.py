"""What a discriminative head takes unless told, by data that are held out from training.

A network with one hidden layer of 128 rectified units and a head, trained by `fit` with its default
options; every candidate on the same data from the same seeds. Data that are held out are never test
data of an experiment: of IMDB they are other reviews of the training set. Rows have the mean over
seeds of NLL, calibration error (15 bins) and accuracy on held-out data.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

# Whoever starts this file, `python benchmarks/priors.py` or `python -m benchmarks.priors`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.problems import WIDTH, Problem, imdb, stored, tables
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from lastlayer.metrics import expected_calibration_error


class Candidate(NamedTuple):
    name: str
    prior: ll.Prior
    bound: Any = "jensen"
    noise: Any = "diagonal"


CANDIDATES = (
    Candidate("s = 1", ll.Prior(variance=1.0)),
    Candidate("s = 1/sqrt(N)", ll.Prior(variance=WIDTH**-0.5)),
    Candidate("s = 1/N", ll.Prior(variance=1 / WIDTH)),
    Candidate("s = 1/(4 N)", ll.Prior(variance=0.25 / WIDTH)),
    Candidate("evidence", ll.Prior(variance="evidence")),
    Candidate("s = 1/N, tilted", ll.Prior(variance=1 / WIDTH), "tilted"),
    Candidate("s = 1/N, no label noise", ll.Prior(variance=1 / WIDTH), "jensen", "none"),
    Candidate("evidence, tilted, no label noise", ll.Prior("evidence"), "tilted", "none"),
)


def measure(
    problem: Problem, candidate: Candidate, epochs: int, seeds: int
) -> list[tuple[float, float, float]]:
    """NLL, calibration error and accuracy of each seed."""
    num_classes = int(problem.target.max()) + 1
    splits = [problem.split(seed) for seed in range(seeds)]
    models = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        backbone = nn.Sequential(nn.Linear(problem.features.shape[1], WIDTH), nn.ReLU())
        head = ll.DiscriminativeClassification(
            WIDTH,
            num_classes,
            num_data=problem.num_train,
            prior=candidate.prior,
            bound=candidate.bound,
            noise=candidate.noise,
        )
        models.append(ll.Network(backbone, head))
    ll.fit_many(models, [train for train, _ in splits], epochs=epochs, progress=False)
    found = []
    for model, (_, (features, target)) in zip(models, splits, strict=True):
        with torch.no_grad():
            predictive = model.eval()(features)
        probs = predictive.probs()
        accuracy = (probs.argmax(-1) == target).float().mean()
        error = expected_calibration_error(probs, target)
        found.append((-float(predictive.log_prob(target).mean()), float(error), float(accuracy)))
    return found


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="""examples:
  python benchmarks/priors.py --quick        does it run? seconds
  LASTLAYER_DATA=data python benchmarks/priors.py --json results/priors.json
                                             with the IMDB embeddings too""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--features", type=Path, help="of a pretrained network, with labels")
    parser.add_argument("--epochs", type=int, default=100, help="of training (default: 100)")
    parser.add_argument("--seeds", type=int, default=3, help="of data and weights (default: 3)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one table, two epochs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    return parser.parse_args()


def problems(arguments: argparse.Namespace) -> list[Problem]:
    if arguments.quick:
        return [problem for problem in tables() if problem.name == "wine"]
    found = tables()
    if "LASTLAYER_DATA" in os.environ:
        found = imdb(Path(os.environ["LASTLAYER_DATA"])) + found
    if arguments.features is not None:
        found.append(stored(arguments.features))
    return found


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    if arguments.quick:
        arguments.epochs = 2
    start = time.perf_counter()
    rows: list[Row] = []
    for problem in problems(arguments):
        for candidate in CANDIDATES:
            progress(f"{problem.name}, {candidate.name}")
            scores = torch.tensor(measure(problem, candidate, arguments.epochs, arguments.seeds))
            nll, error, accuracy = scores.mean(0).tolist()
            spread = float(scores[:, 0].std(correction=0))
            rows.append(
                {
                    "data": problem.name,
                    "T": problem.num_train,
                    "candidate": candidate.name,
                    "nll": nll,
                    "nll, deviation": spread,
                    "ece": error,
                    "accuracy": accuracy,
                }
            )
            if arguments.json:  # what is measured is kept, whatever happens next
                config = {**vars(arguments), "features": arguments.features is not None}
                about = {**environment(), "seconds": time.perf_counter() - start}
                write_json(arguments.json, config, about, {"fit": rows})
    print_table("Held-out scores of `fit`, by the prior of a discriminative head", rows)


if __name__ == "__main__":
    main()
