"""Passes over cached features until a discriminative head is within 1e-3 of its optimum.

The solver of `posttrain` against AdamW, on the same features, from the same initialisation: the
weights of a softmax layer trained without uncertainty. One pass sees every example once, for AdamW
in batches (an epoch), and rejected steps of the solver count. AdamW runs with a constant learning
rate, and with one that decays to zero over a tenth or all of the epochs allowed; the best of
several rates counts. It has no weight decay, as the head has its own prior. Evaluating its loss on
all the data after every epoch is not counted. The optimum is the lowest loss of the solver, or of
L-BFGS in double precision from there. "start" is the initial distance to it, in nats per example;
"-" means not reached in the epochs allowed, and "left" is the distance of the best run of AdamW.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Whoever starts this file, `python benchmarks/posttrain.py` or `python -m benchmarks.posttrain`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from lastlayer.posttraining.solvers import fit_discriminative

GAP = 1e-3  # nats per example
LEARNING_RATES = (1e-2, 3e-2, 1e-1, 3e-1)
COVARIANCES = ("dense", "diagonal", "low_rank", "shared", "kronecker")
BOUNDS = ("jensen", "tilted")


class Problem(NamedTuple):
    name: str
    features: Tensor  # (T, N)
    target: Tensor  # (T,)
    num_classes: int
    covariances: tuple[str, ...] = COVARIANCES  # low rank is slow to project where N is large
    epochs: int = 1000  # maximum of AdamW, where an epoch takes long


def synthetic(name: str, sizes: tuple[int, int, int], spread: float, seed: int) -> Problem:
    """Rectified features of very unequal size, and labels drawn from a softmax of them."""
    num_data, num_features, num_classes = sizes
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(num_features, num_features, generator=generator) / num_features**0.5
    noise = torch.randn(num_data, num_features, generator=generator)
    features = (1.5 * noise @ mixing + 0.3).relu() * torch.logspace(-1.5, 0.5, num_features)
    weights = torch.randn(num_features, num_classes, generator=generator) / num_features**0.5
    probs = (spread * features @ weights).softmax(-1)
    return Problem(name, features, probs.multinomial(1, generator=generator)[:, 0], num_classes)


def imdb(folder: Path) -> Problem:
    """Sentence embeddings of 25,000 film reviews, positive or negative."""
    import numpy as np

    with np.load(folder / "imdb" / "minilm_embeddings.npz") as stored:
        train = stored["is_train"].astype(bool)
        features = torch.from_numpy(stored["embeddings"][train]).float()
        target = torch.from_numpy(stored["labels"][train]).long()
    return Problem("imdb", features, target, 2, ("dense", "diagonal"), 20)


def trained_layer(problem: Problem) -> Tensor:
    """Weights and bias of a softmax layer with weak weight decay, (K, N + 1), by L-BFGS."""
    inputs = torch.nn.functional.pad(problem.features, (0, 1), value=1.0)
    weights = torch.zeros(problem.num_classes, inputs.shape[-1], requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(inputs @ weights.mT, problem.target)
        loss = loss + 1e-4 * weights.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return weights.detach()


def make_head(problem: Problem, start: Tensor, covariance: str, bound: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    num_data, num_features = problem.features.shape
    head = ll.DiscriminativeClassification(
        num_features,
        problem.num_classes,
        num_data=num_data,
        covariance=covariance,
        bound=bound,
        prior=ll.Prior(),
        bias=True,
    )
    with torch.no_grad():
        head.mean.copy_(start)
    return head


@torch.no_grad()
def full_loss(head: Any, problem: Problem) -> float:
    chunks = zip(problem.features.split(1000), problem.target.split(1000), strict=True)
    return sum(float(head(x, y)) * len(y) for x, y in chunks) / len(problem.target)


def adamw(
    head: Any, problem: Problem, rate: float, batch: int, epochs: int, decay: bool, goal: float
) -> tuple[list[float], list[float]]:
    """Losses after each epoch until the goal, and seconds spent training until then."""
    optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=0.0)
    generator = torch.Generator().manual_seed(0)
    num_steps = epochs * -(-len(problem.target) // batch)
    losses: list[float] = []
    seconds = [0.0]
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: max(1 - step / num_steps, 0) if decay else 1.0
    )
    while len(losses) < epochs and not (losses and losses[-1] < goal):
        start = time.perf_counter()
        for chosen in torch.randperm(len(problem.target), generator=generator).split(batch):
            optimizer.zero_grad()
            head(problem.features[chosen], problem.target[chosen]).backward()
            optimizer.step()
            schedule.step()
        seconds.append(seconds[-1] + time.perf_counter() - start)
        losses.append(full_loss(head, problem))
    return losses, seconds


def best_adamw(
    head: Any, problem: Problem, arguments: argparse.Namespace, decay: bool, goal: float
) -> tuple[float, float, float]:
    """Epochs and seconds until the goal, NaN if never reached, and the lowest loss."""
    most = min(arguments.epochs, problem.epochs)
    found, lowest = (float("nan"), float("nan")), float("inf")
    for epochs in (max(most // 10, 1), most) if decay else (most,):
        for rate in LEARNING_RATES:
            trained = copy.deepcopy(head)
            limit = epochs if decay or found[0] != found[0] else int(found[0]) - 1
            if limit < 1:
                continue
            losses, seconds = adamw(trained, problem, rate, arguments.batch, limit, decay, goal)
            lowest = min(lowest, *losses)
            if losses[-1] < goal and not found[0] <= len(losses):
                found = (len(losses), seconds[-1])
        if found[0] == found[0]:
            break
    return (*found, lowest)


def polish(head: Any, problem: Problem) -> float:
    """The loss after L-BFGS in double precision, from a head that is close to the optimum."""
    head, features = copy.deepcopy(head).double(), problem.features.double()
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = head(features, problem.target)
        loss.backward()
        return loss

    optimizer.step(closure)
    return float(head(features, problem.target).detach())


def measure(problem: Problem, covariance: str, bound: str, arguments: argparse.Namespace) -> Row:
    progress(f"{problem.name}, {covariance}, {bound}")
    start = trained_layer(problem)
    head = make_head(problem, start, covariance, bound, arguments.seed)
    fitted = copy.deepcopy(head)
    losses = fit_discriminative(
        fitted, problem.features, problem.target, max_passes=40, tolerance=1e-6, progress=False
    )
    best = min(losses[-1], polish(fitted, problem))
    ours = next((i for i, loss in enumerate(losses, 1) if loss < best + GAP), None)
    again, clock = copy.deepcopy(head), time.perf_counter()
    fit_discriminative(
        again, problem.features, problem.target, max_passes=ours or 40, progress=False
    )
    row: Row = {
        "data": problem.name,
        "T": len(problem.target),
        "N": problem.features.shape[1],
        "K": problem.num_classes,
        "covariance": covariance,
        "bound": bound,
        "start": losses[0] - best,
        "passes, ours": ours or float("nan"),
        "seconds, ours": time.perf_counter() - clock,
    }
    for name, decay in (("AdamW", False), ("decayed", True)):
        passes, seconds, lowest = best_adamw(head, problem, arguments, decay, best + GAP)
        row[f"passes, {name}"], row[f"seconds, {name}"] = passes, seconds
        row[f"left, {name}"] = lowest - best
    row["epochs"] = min(arguments.epochs, problem.epochs)
    return row


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="""examples:
  python benchmarks/posttrain.py                     every problem, covariance and bound
  python benchmarks/posttrain.py --quick             does it run? seconds
  LASTLAYER_DATA=data python benchmarks/posttrain.py --json results/posttrain.json
                                                     with the IMDB embeddings too""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--problems", help="of these, by comma (default: all there are)")
    parser.add_argument("--covariances", default=",".join(COVARIANCES), help="of these, by comma")
    parser.add_argument("--bounds", default=",".join(BOUNDS), help="of these, by comma")
    parser.add_argument("--epochs", type=int, default=50, help="maximum of AdamW (default: 50)")
    parser.add_argument("--batch", type=int, default=128, help="of AdamW (default: 128)")
    parser.add_argument("--seed", type=int, default=0, help="of data and parameters")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one small problem")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    return parser.parse_args()


def problems(arguments: argparse.Namespace) -> list[Problem]:
    if arguments.quick:
        return [synthetic("small", (500, 6, 3), 3.0, arguments.seed)]
    found = [
        synthetic("noisy", (5000, 32, 10), 3.0, arguments.seed),
        synthetic("confident", (5000, 32, 10), 30.0, arguments.seed),
        synthetic("wide", (5000, 128, 10), 10.0, arguments.seed)._replace(
            covariances=("dense", "diagonal"), epochs=30
        ),
    ]
    if "LASTLAYER_DATA" in os.environ:
        found.append(imdb(Path(os.environ["LASTLAYER_DATA"])))
    chosen = arguments.problems.split(",") if arguments.problems else None
    return [problem for problem in found if chosen is None or problem.name in chosen]


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    start = time.perf_counter()
    rows: list[Row] = []
    for problem in problems(arguments):
        for covariance in problem.covariances:
            for bound in arguments.bounds.split(","):
                if covariance not in arguments.covariances.split(","):
                    continue
                rows.append(measure(problem, covariance, bound, arguments))
                if arguments.json:  # what is measured is kept, whatever happens next
                    config = {**vars(arguments), "gap": GAP, "learning_rates": LEARNING_RATES}
                    about = {**environment(), "seconds": time.perf_counter() - start}
                    write_json(arguments.json, config, about, {"passes": rows})
    print_table(f"Passes to within {GAP:g} nats per example of the optimum: ours | AdamW", rows)


if __name__ == "__main__":
    main()
