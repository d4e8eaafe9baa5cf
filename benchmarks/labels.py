"""Labels that are wrong in a few regions: what is learnt of right ones, and which are found.

All networks have the same two layers of 64 units, the same batches, Adam, and the weights of the
epoch with the lowest validation loss, of labels that are as wrong as those of training. NLL and
accuracy are of right labels of test data; means over seeds with their standard error.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Whoever starts this file, `python benchmarks/labels.py` or `python -m benchmarks.labels`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.noise import NUM_TEST, NUM_TRAIN, NUM_VALIDATION, WIDTH, Model, summary, trained
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from lastlayer import metrics

NUM_CLASSES = 5
SHARES = {"any class": 0.6, "one other class": 0.4, "none": 0.0}  # of wrong labels in the regions
SECTIONS = ("regions", "priors")
PRIOR_SEEDS = 100_000  # far from those of the tables
PRIOR_ROWS, PRIOR_WIDTH = 400, 32
NOISE_PRIORS: dict[str, ll.Prior] = {
    "1/M, 1": ll.Prior(variance=1 / PRIOR_WIDTH, bias_variance=1.0),
    "10/M, 4": ll.Prior(variance=10 / PRIOR_WIDTH, bias_variance=4.0),
    "evidence, 4": ll.Prior(variance="evidence", bias_variance=4.0),
}
SCORES = ("NLL", "NLL in the regions", "accuracy", "accuracy in the regions", "AUROC")


# ------------------------------------------------------------------------------------- data


class Data(NamedTuple):
    """Inputs, labels as they are given, right ones, and where the regions are."""

    inputs: Tensor
    given: Tensor
    right: Tensor
    region: Tensor

    @property
    def examples(self) -> tuple[Tensor, Tensor]:
        """What training sees."""
        return self.inputs, self.given


class Problem:
    """Five classes of four inputs, whose labels are wrong in two regions, 30 % of the inputs."""

    def __init__(self, seed: int, wrong: str) -> None:
        self.generator, self.wrong = torch.Generator().manual_seed(seed), wrong
        self.frequencies = 2 * torch.randn(4, NUM_CLASSES, generator=self.generator)
        self.phases = 2 * math.pi * torch.rand(NUM_CLASSES, generator=self.generator)

    def rows(self, count: int) -> Data:
        """Independent examples."""
        inputs = torch.rand(count, 4, generator=self.generator)
        logits = 10 * (inputs @ self.frequencies + self.phases).sin()
        right = logits.softmax(-1).multinomial(1, generator=self.generator).squeeze(-1)
        region = (inputs[:, 3] > 0.8) | ((inputs[:, 0] < 0.3) & (inputs[:, 1] < 0.4))
        changed = region & (torch.rand(count, generator=self.generator) < SHARES[self.wrong])
        shift = torch.randint(1, NUM_CLASSES, (count,), generator=self.generator)
        shift = torch.ones_like(shift) if self.wrong == "one other class" else shift
        return Data(inputs, (right + shift * changed) % NUM_CLASSES, right, region)


# -------------------------------------------------------------------------------- contenders


class Softmax(Model):
    """A linear layer trained on cross-entropy."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(self.features(inputs))

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self(inputs), target)

    def predictive(self, inputs: Tensor) -> ll.ClassificationPredictive:
        return ll.SoftmaxPredictive(self(inputs))


def makers(num_data: int) -> dict[str, Callable[[], Model]]:
    sizes, options = (WIDTH, NUM_CLASSES), {"num_data": num_data, "bias": True}
    return {
        "softmax": lambda: Softmax(nn.Linear(*sizes)),
        "DiscriminativeClassification": lambda: Model(
            ll.DiscriminativeClassification(*sizes, **options)
        ),
        "NoisyLabelClassification": lambda: Model(ll.NoisyLabelClassification(*sizes, **options)),
    }


def scores(given: Any, predictive: Any, train: Data, test: Data) -> dict[str, float]:
    """NLL and accuracy of right labels, and how well wrong ones of training are told.

    Args:
        given: predictive of the training data.
        predictive: that of the test data.
        train: whose wrong labels are to be found.
        test: with right labels.
    """
    right = getattr(predictive, "right", predictive)
    nll, hits = -right.log_prob(test.right), (right.mode == test.right).double()
    found = {"NLL": nll.mean(), "accuracy": hits.mean()}
    found |= {"NLL in the regions": nll[test.region].mean()}
    found |= {"accuracy in the regions": hits[test.region].mean()}
    if hasattr(given, "wrong_label_probability"):
        suspicion = given.wrong_label_probability(train.given)
    else:
        suspicion = 1 - given.log_prob(train.given).exp()
    wrong = train.given != train.right
    if wrong.any():
        found["AUROC"] = metrics.ood(suspicion[~wrong], suspicion[wrong])["auroc"]
    return {name: float(value) for name, value in found.items()}


# --------------------------------------------------------------------------------- sections


def region_rows(arguments: argparse.Namespace) -> list[Row]:
    """Networks trained and post-trained on labels that are wrong in two regions."""
    found = []
    for wrong in SHARES:
        by_name: dict[str, list[dict[str, float]]] = {}
        for seed in range(arguments.seeds):
            problem = Problem(7000 + seed, wrong)
            train, validation, test = map(problem.rows, (NUM_TRAIN, NUM_VALIDATION, NUM_TEST))

            @torch.no_grad()
            def add(name: str, predict: Callable[[Tensor], Any]) -> None:
                run = scores(predict(train.inputs), predict(test.inputs), train, test)  # noqa: B023
                by_name.setdefault(name, []).append(run)  # noqa: B023

            for name, make in makers(NUM_TRAIN).items():
                progress(f"{wrong}: seed {seed}, {name}")
                model = trained(make, train.examples, validation.examples, seed, arguments.epochs)
                add(name, model.predictive)
                if name == "softmax":
                    for head in ("discriminative", "noisy_labels"):
                        after = ll.posttrain(model, train.examples, head, progress=False)
                        add(f'softmax, then posttrain(…, "{head}")', after)
            if wrong != "none":
                name = "DiscriminativeClassification"
                right = [(part.inputs, part.right) for part in (train, validation)]
                model = trained(makers(NUM_TRAIN)[name], *right, seed, arguments.epochs)
                add(f"{name}, right labels", model.predictive)
        found += [
            {"wrong": wrong, "model": name} | summaries(runs) for name, runs in by_name.items()
        ]
    return found


def prior_rows(arguments: argparse.Namespace) -> list[Row]:
    """NLL of right labels by the prior of the log-odds.

    Heads are solved on the features of a network that was not trained.
    """
    found = []
    sizes = (PRIOR_WIDTH, NUM_CLASSES)
    options: dict[str, Any] = {"num_data": PRIOR_ROWS, "bias": True}
    options["prior"] = ll.Prior(variance=10 / PRIOR_WIDTH, bias_variance=1.0)
    for wrong in ("any class", "none"):
        by_name: dict[str, list[dict[str, float]]] = {}
        for seed in range(PRIOR_SEEDS, PRIOR_SEEDS + arguments.prior_seeds):
            progress(f"priors: {wrong}, seed {seed}")
            problem = Problem(seed, wrong)
            train, test = problem.rows(PRIOR_ROWS), problem.rows(NUM_TEST)
            torch.manual_seed(seed)
            network = Model(nn.Identity()).requires_grad_(False)
            inputs, seen = (
                network.features(part.inputs)[:, :PRIOR_WIDTH] for part in (train, test)
            )
            heads: dict[str, ll.Head] = {
                name: ll.NoisyLabelClassification(*sizes, noise_prior=prior, **options)
                for name, prior in NOISE_PRIORS.items()
            }
            heads["trusts labels"] = ll.DiscriminativeClassification(*sizes, **options)
            for name, head in heads.items():
                head.requires_grad_(False).fit_features(inputs, train.given)
                run = scores(head(inputs), head(seen), train, test)
                by_name.setdefault(name, []).append(run)
        found += [
            {"wrong": wrong, "prior": name} | summaries(runs) for name, runs in by_name.items()
        ]
    return found


def summaries(runs: list[dict[str, float]]) -> Row:
    """Means of scores and their standard errors."""
    row: Row = {}
    for name in SCORES:
        values = [run[name] for run in runs if name in run]
        row[name], row[f"{name} ±"] = summary(values) if values else (math.nan, math.nan)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sections", default=",".join(SECTIONS), help="of these, by comma")
    parser.add_argument("--seeds", type=int, default=5, help="of data and networks (default: 5)")
    parser.add_argument("--prior-seeds", type=int, default=100, help="of priors (default: 100)")
    parser.add_argument("--epochs", type=int, default=40, help="of training (default: 40)")
    parser.add_argument("--quick", action="store_true", help="does it run? numbers mean little")
    parser.add_argument(
        "--records", type=Path, metavar="FOLDER", help="also write a record of each section here"
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seeds, arguments.prior_seeds, arguments.epochs = 1, 1, 2
    torch.set_num_threads(1)
    measure = {"regions": region_rows, "priors": prior_rows}
    config = {name: getattr(arguments, name) for name in ("seeds", "prior_seeds", "epochs")}
    for name in arguments.sections.split(","):
        begun, about = time.perf_counter(), environment()
        found = measure[name](arguments)
        print_table(name, found)
        if arguments.records:
            about["seconds"] = round(time.perf_counter() - begun, 1)
            write_json(arguments.records / f"labels-{name}.json", config, about, {name: found})


if __name__ == "__main__":
    main()
