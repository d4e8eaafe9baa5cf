"""Labels that are wrong in a few regions: what is learnt of right ones, and which are found.

All networks have two hidden layers, the same batches, AdamW, and the weights of the epoch with the
lowest NLL of validation data, whose labels are as wrong as those of training. NLL and accuracy are
of right labels of test data; means over seeds with their standard error.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Whoever starts this file, `python benchmarks/labels.py` or `python -m benchmarks.labels`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lastlayer as ll
from benchmarks.noise import summary
from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from lastlayer import metrics

NUM_CLASSES = 5
SHARES = {"any class": 0.6, "one other class": 0.4, "none": 0.0}  # of wrong labels in the regions
SECTIONS = ("regions", "priors")
WIDTH, NUM_TRAIN, NUM_VALIDATION, NUM_TEST = 64, 1200, 300, 2000
PRIOR_WIDTH, PRIOR_TRAIN, PRIOR_VALIDATION, PRIOR_TEST = 16, 400, 100, 500
FIRST_SEED, FIRST_PRIOR_SEED = 7000, 100_000  # far from each other
NOISE_PRIORS: dict[str, ll.Prior] = {
    "1/M, 1": ll.Prior(variance=1 / PRIOR_WIDTH, bias_variance=1.0),
    "10/M, 4": ll.Prior(variance=10 / PRIOR_WIDTH, bias_variance=4.0),
}
MANY = 20  # models from which training them together is faster
REFERENCE = "DiscriminativeClassification"
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


def splits(seeds: Sequence[int], wrong: str, *sizes: int) -> list[list[Data]]:
    """Training, validation and test data of each seed."""
    problems = [Problem(seed, wrong) for seed in seeds]
    return [[problem.rows(size) for size in sizes] for problem in problems]


# -------------------------------------------------------------------------------- contenders


class Softmax(nn.Module):
    """A network trained on cross-entropy."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Any:
        logits = self.network(inputs)
        return ll.SoftmaxPredictive(logits) if target is None else F.cross_entropy(logits, target)


class Centered(nn.Module):
    """Inputs between zero and one, of mean zero and unit variance."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 12**0.5 * (inputs - 0.5)


def backbone(width: int) -> nn.Sequential:
    return nn.Sequential(
        Centered(), nn.Linear(4, width), nn.ELU(), nn.Linear(width, width), nn.ELU()
    )


def softmax() -> nn.Module:
    return Softmax(backbone(WIDTH).append(nn.Linear(WIDTH, NUM_CLASSES)))


def with_head(make: Callable[..., ll.Head], width: int, num_data: int, **options: Any) -> nn.Module:
    head = make(width, NUM_CLASSES, num_data=num_data, bias=True, **options)
    return ll.Network(backbone(width), head)


def trained(make: Callable[[], nn.Module], parts: list[list[Data]], epochs: int) -> list[nn.Module]:
    """Networks of all seeds, trained as one batched model."""
    models = []
    for seed in range(len(parts)):
        torch.manual_seed(seed)
        models.append(make())
    options: dict[str, Any] = {"epochs": epochs, "batch_size": 100, "learning_rate": 3e-3}
    options |= {"schedule": "cosine", "validate_every": 5, "progress": False}
    train, validation = ([split[at].examples for split in parts] for at in (0, 1))
    if len(parts) >= MANY:
        ll.fit_many(models, train, validation, **options)
    else:
        for seed, (model, *data) in enumerate(zip(models, train, validation, strict=True)):
            ll.fit(model, *data, seed=seed, **options)
    return [model.eval().requires_grad_(False) for model in models]


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
    """Networks trained and post-trained on labels that are wrong in two regions.

    Inputs and right labels are the same whatever is wrong, so that the rows without wrong labels
    say what could be learnt.
    """
    found = []
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    for wrong in SHARES:
        parts = splits(seeds, wrong, NUM_TRAIN, NUM_VALIDATION, NUM_TEST)
        by_name: dict[str, list[nn.Module]] = {}
        progress(f"{wrong}: softmax")
        by_name["softmax"] = trained(softmax, parts, arguments.epochs)
        for head in ("discriminative", "noisy_labels"):
            progress(f"{wrong}: posttrain, {head}")
            by_name[f'softmax, then posttrain(…, "{head}")'] = [
                ll.posttrain(model.get_submodule("network"), train.examples, head, progress=False)
                for model, (train, *_) in zip(by_name["softmax"], parts, strict=True)
            ]
        for make in (ll.DiscriminativeClassification, ll.NoisyLabelClassification):
            progress(f"{wrong}: {make.__name__}")
            made = functools.partial(with_head, make, WIDTH, NUM_TRAIN)
            by_name[make.__name__] = trained(made, parts, arguments.epochs)
        found += rows(by_name, parts, wrong, "model")
    return found


def prior_rows(arguments: argparse.Namespace) -> list[Row]:
    """Networks trained with priors of the log-odds."""
    found = []
    seeds = range(FIRST_PRIOR_SEED, FIRST_PRIOR_SEED + arguments.prior_seeds)
    for wrong in ("any class", "none"):
        parts = splits(seeds, wrong, PRIOR_TRAIN, PRIOR_VALIDATION, PRIOR_TEST)
        makers: dict[str, Callable[[], nn.Module]] = {
            name: functools.partial(
                with_head,
                ll.NoisyLabelClassification,
                PRIOR_WIDTH,
                PRIOR_TRAIN,
                noise_prior=prior,
            )
            for name, prior in NOISE_PRIORS.items()
        }
        makers[REFERENCE] = functools.partial(
            with_head, ll.DiscriminativeClassification, PRIOR_WIDTH, PRIOR_TRAIN
        )
        by_name = {}
        for name, make in makers.items():
            progress(f"priors: {wrong}, {name}")
            by_name[name] = trained(make, parts, arguments.epochs)
        found += rows(by_name, parts, wrong, "prior")
    return found


@torch.no_grad()
def rows(
    by_name: dict[str, list[nn.Module]], parts: list[list[Data]], wrong: str, kind: str
) -> list[Row]:
    """Mean scores of models of each name, one model for each seed.

    Problems differ more than models do: differences are to the same seed's REFERENCE.
    """
    runs = {
        name: [
            scores(model(train.inputs), model(test.inputs), train, test)
            for model, (train, _, test) in zip(models, parts, strict=True)
        ]
        for name, models in by_name.items()
    }
    found = []
    for name, own in runs.items():
        row: Row = {"wrong": wrong, kind: name}
        for score in SCORES:
            pairs = [
                (run[score], other[score])
                for run, other in zip(own, runs[REFERENCE], strict=True)
                if score in run
            ]
            row |= deviation(score, [value for value, _ in pairs])
            row |= deviation(f"{score}, difference", [value - other for value, other in pairs])
        found.append(row)
    return found


def deviation(name: str, values: list[float]) -> Row:
    """A mean and its standard error."""
    mean, error = summary(values) if values else (math.nan, math.nan)
    return {name: mean, f"{name} ±": error}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sections", default=",".join(SECTIONS), help="of these, by comma")
    parser.add_argument("--seeds", type=int, default=3, help="of data and networks (default: 3)")
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
