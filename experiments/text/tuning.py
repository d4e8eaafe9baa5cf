"""Tuning of learning rate and weight decay on held-out training reviews, with a record of it.

As in the paper at 10 and at 25,000 reviews. It does not say what was best: here what has the
lowest mean NLL on 5,000 training reviews of films that are in no training set, as films of test
reviews are in none; of the MLP, beside it, what has the highest accuracy. Test reviews play no
part.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from ..harness import records
from ..harness.records import Record
from ..harness.statistics import Metric
from . import methods
from .task import tuning_task

LEARNING_RATES = (3e-4, 1e-3, 3e-3)
WEIGHT_DECAYS = (0.01, 0.1, 1.0)
SEEDS = {"10": range(100, 110), "25000": range(100, 101)}  # none of the table's
IDENTITY = ("method", "n", "learning_rate", "weight_decay", "seed")

Setting = tuple[str, str, float, float]  # method, size, learning rate, weight decay


def path(results: Path) -> Path:
    """Where the record is, a line for each run."""
    return results / "text" / "tuning.jsonl"


def settings() -> Iterator[Setting]:
    """All that is tried."""
    yield from itertools.product(methods.PAPER, SEEDS, LEARNING_RATES, WEIGHT_DECAYS)


def tune(features: str, results: Path) -> None:
    """Try every setting that has no record."""
    torch.set_num_threads(1)
    done = {_setting(record) for record in records.read(path(results), IDENTITY)}
    for setting in tqdm([one for one in settings() if one not in done], unit="setting"):
        records.append(path(results), list(_tried(features, *setting)))


def _setting(record: Record) -> Setting:
    config = record["config"]
    return config["method"], str(config["n"]), config["learning_rate"], config["weight_decay"]


def _tried(
    features: str, name: str, size: str, learning_rate: float, weight_decay: float
) -> Iterator[Record]:
    """Train with one setting, all seeds together, and test on what is held out."""
    method = methods.METHODS[name].configured(
        size, learning_rate=learning_rate, weight_decay=weight_decay
    )
    tasks = [tuning_task(features, methods.SIZES[size], seed) for seed in SEEDS[size]]
    for task, (model, notes) in zip(tasks, method.train(tasks), strict=True):
        about = {"method": name, "dataset": features, "n": methods.SIZES[size], "seed": task.seed}
        yield {
            "config": about | dataclasses.asdict(method),
            "metrics": {f"held_out_{k}": v for k, v in task.evaluate(model).items()} | notes,
            "versions": records.versions(),
            "time": records.now(),
        }


def chosen(results: Path, metric: Metric) -> dict[str, dict[str, tuple[float, float]]]:
    """By method and size, the learning rate and weight decay that are best by a metric.

    Of settings that are equally good, that with the lower NLL.
    """
    values: dict[Setting, list[tuple[float, float]]] = {}
    sign = -1.0 if metric.higher_is_better else 1.0
    for record in records.read(path(results), IDENTITY):
        found = record["metrics"]
        value = sign * found[f"held_out_{metric.name}"], found["held_out_nll"]
        values.setdefault(_setting(record), []).append(value)
    means = {setting: tuple(np.mean(each, 0)) for setting, each in values.items()}
    best: dict[str, dict[str, tuple[float, float]]] = {}
    for setting in sorted(means, key=lambda one: means[one]):
        method, size, learning_rate, weight_decay = setting
        best.setdefault(method, {}).setdefault(size, (learning_rate, weight_decay))
    return best
