"""What predicting class probabilities loses and takes: NLL on real features, memory, and time.

Heads are fitted on fixed features, and held-out examples predicted by the default rule, by twenty
samples as in the vbll package, and by the accurate rule with many nodes, which counts as exact.
Memory is the most that is allocated at once from features to probabilities, beside parameters and
features, in units of one logit per example and class. Times are of everything that a predictive
computes, beside `nn.Linear` with softmax and twenty samples, interleaved.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# Whoever starts this file, `python benchmarks/predicting.py` or `python -m benchmarks.predicting`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.memory import allocated
from benchmarks.problems import HELD_OUT, Problem, reviews, stored, tables
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import interleave, progress
from lastlayer.functional import expected_log_softmax

NUM_NODES = 200
NUM_TRAIN = 1000  # reviews
COVARIANCES = ("diagonal", "low_rank", "dense")
LARGE = (  # covariance, examples, features, classes
    ("diagonal", 128, 2048, 1000),
    ("low_rank", 128, 2048, 1000),
    ("kronecker", 128, 2048, 1000),
    ("low_rank", 128, 256, 32_000),
    ("kronecker", 128, 256, 32_000),
)


CALLS = (  # of a predictive
    ("probs", lambda predictive, labels: predictive.probs()),
    ("log_prob", lambda predictive, labels: predictive.log_prob(labels)),
    ("entropy", lambda predictive, labels: predictive.entropy()),
    ("mutual_information", lambda predictive, labels: predictive.mutual_information()),
)
TIMED = (10, 100, 1000)  # classes, of 128 examples of 640 features


def problems(folder: Path) -> list[Problem]:
    """Sentiment and ratings of film reviews, and handwritten digits."""
    found = [
        Problem(f"reviews, {target}", *reviews(folder, target), NUM_TRAIN, HELD_OUT)
        for target in ("labels", "rating")
    ]
    return found + [problem for problem in tables() if problem.name == "digits"]


def nll_rows(found: list[Problem]) -> list[Row]:
    """How much higher the NLL is than that of the accurate rule, and errors of probabilities."""
    rows = []
    for problem in found:
        (features, target), (inputs, labels) = problem.split(0)
        num_classes = int(problem.target.max()) + 1
        for covariance in COVARIANCES:
            progress(f"NLL: {problem.name}, {covariance}")
            torch.manual_seed(0)
            head = ll.DiscriminativeClassification(
                features.shape[-1],
                num_classes,
                num_data=len(target),
                covariance=covariance,
                bias=True,
            )
            head.fit_features(features, target)
            with torch.no_grad():
                rows.append(_errors(head(inputs), labels, problem.name, covariance))
    return rows


def _errors(
    predictive: ll.DiscriminativePredictive, labels: Tensor, problem: str, covariance: str
) -> Row:
    mean, variance = predictive.logit_mean, predictive.logit_variance
    exact = expected_log_softmax(mean, variance, NUM_NODES)
    exact_nll = _nll(exact, labels)
    generator = torch.Generator().manual_seed(0)
    probs, sampled = predictive.probs(), predictive.probs(num_samples=20, generator=generator)
    return {
        "problem": problem,
        "covariance": covariance,
        "median variance": float(variance.median()),
        "NLL": exact_nll,
        "log_prob − exact": float(-predictive.log_prob(labels).mean()) - exact_nll,
        "20 samples − exact": _nll(sampled.clamp_min(1e-30).log(), labels) - exact_nll,
        "mean error": float((probs - exact.exp()).abs().mean()),
        "of 20 samples": float((sampled - exact.exp()).abs().mean()),
        "largest error": float((probs - exact.exp()).abs().max()),
    }


def _nll(log_probs: Tensor, labels: Tensor) -> float:
    return float(-log_probs.gather(-1, labels.unsqueeze(-1)).mean())


def _softmax(layer: torch.nn.Linear, features: Tensor) -> Tensor:
    probs: Tensor = layer(features).softmax(-1)
    return probs


def _samples(predictive: Any, labels: Tensor) -> Tensor:
    probs: Tensor = predictive.probs(num_samples=20)
    return probs


def _predicted(
    head: ll.DiscriminativeClassification, features: Tensor, call: Any, labels: Tensor
) -> object:
    return call(head(features), labels)


def time_rows(seconds: float) -> list[Row]:
    """Times of everything that a head with diagonal covariances predicts."""
    rows: list[Row] = []
    for num_classes in TIMED:
        progress(f"time: {num_classes} classes")
        generator = torch.Generator().manual_seed(0)
        features = torch.randn(128, 640, generator=generator)
        labels = torch.randint(num_classes, (128,), generator=generator)
        head = ll.DiscriminativeClassification(
            640, num_classes, num_data=50_000, covariance="diagonal"
        )
        steps: dict[str, Callable[[], object]] = {
            "linear": partial(_softmax, torch.nn.Linear(640, num_classes), features),
            "20 samples": partial(_predicted, head, features, _samples, labels),
            **{name: partial(_predicted, head, features, call, labels) for name, call in CALLS},
        }
        with torch.no_grad():
            timings = interleave(steps, seconds, 3)
        taken = {name: timing.median for name, timing in timings.items()}
        for name, _ in CALLS:
            rows.append(
                {
                    "what": name,
                    "size": f"B128 N640 K{num_classes}",
                    "ms": 1e3 * taken[name],
                    "× nn.Linear": taken[name] / taken["linear"],
                    "20 samples / ours": taken["20 samples"] / taken[name],
                }
            )
    return rows


def memory_rows() -> list[Row]:
    """Peak memory of predicting with large last layers."""
    rows: list[Row] = []
    for covariance, batch, width, num_classes in LARGE:
        progress(f"memory: {covariance}, {num_classes} classes")
        head = ll.DiscriminativeClassification(
            width, num_classes, num_data=50_000, covariance=covariance, noise="none"
        )
        features = torch.randn(batch, width, generator=torch.Generator().manual_seed(0))

        def step(head: ll.DiscriminativeClassification = head, features: Tensor = features) -> None:
            with torch.no_grad():
                head(features).probs()

        step()
        start = time.thread_time()
        step()
        rows.append(
            {
                "covariance": covariance,
                "size": f"B{batch} N{width} K{num_classes}",
                "seconds": time.thread_time() - start,
                "logits_MB": 4e-6 * batch * num_classes,
                "allocated_MB": allocated(step) / 1e6,
                "logits per example": allocated(step) / (4 * batch * num_classes),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get("LASTLAYER_DATA", "data")),
        help="folder of all data (default: the variable LASTLAYER_DATA)",
    )
    parser.add_argument("--features", type=Path, help="also of a pretrained network, with labels")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each time (default: 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = problems(arguments.data)
    if arguments.features is not None:
        found.append(stored(arguments.features))
    results = {
        "times": time_rows(arguments.seconds),
        "memory": memory_rows(),
        "nll": nll_rows(found),
    }
    print_table("Times", results["times"])
    print_table("Most that is allocated in a prediction", results["memory"])
    print_table(f"Held-out NLL against {NUM_NODES} nodes", results["nll"])
    if arguments.json:
        write_json(arguments.json, {"num_nodes": NUM_NODES}, environment(), results)


if __name__ == "__main__":
    main()
