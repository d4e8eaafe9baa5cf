"""Settings of docs/choosing.md, and training with many seeds at once."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

import lastlayer as ll
from benchmarks.report import Row
from lastlayer import metrics

Pair = tuple[Tensor, Tensor]
Trial = tuple[ll.Network, Pair, Pair]  # a model, training data and test data
Sections = dict[str, list[Row]]


@dataclass(frozen=True)
class Config:
    width: int = 50
    num_seeds: int = 10  # 0, 1, 2, …
    test_size: int = 2000
    wave_size: int = 40
    wave_noise: float = 0.3  # standard deviation of the targets
    wave_epochs: int = 1500
    wave_learning_rate: float = 1e-2
    bound_sizes: tuple[int, ...] = (20, 60, 200)
    bound_noise: float = 0.25  # standard deviation of the inputs around the moons
    bound_epochs: int = 200
    bound_learning_rate: float = 5e-2
    moons_size: int = 400
    moons_noise: float = 0.15
    moons_epochs: int = 200
    moons_learning_rate: float = 1e-2
    ring_radius: float = 3.0


QUICK = Config(
    num_seeds=2,
    test_size=200,
    wave_epochs=60,
    bound_sizes=(20, 60),
    bound_epochs=60,
    moons_epochs=30,
)


class Runs(NamedTuple):
    """The same training with several seeds: a model, its data and its history for each."""

    models: list[ll.Network]
    data: list[Pair]
    tests: list[Pair]
    histories: list[ll.History]

    def measure(self) -> list[dict[str, float]]:
        """The training loss and the metrics of the test data."""
        with torch.no_grad():
            return [
                {"loss": model(*data).item()} | metrics.evaluate(model, test)
                for model, data, test in zip(*self[:3], strict=True)
            ]


def train(make: Callable[[], Trial], num_seeds: int, epochs: int, learning_rate: float) -> Runs:
    """All seeds at once, all examples in each step, and a learning rate that rises and falls."""
    trials = []
    for seed in range(num_seeds):
        torch.manual_seed(seed)
        trials.append(make())
    models, data, tests = (list(part) for part in zip(*trials, strict=True))
    options: dict[str, Any] = {"batch_size": len(data[0][0]), "learning_rate": learning_rate}
    histories = ll.fit_many(models, data, epochs=epochs, schedule="warmup_cosine", **options)
    return Runs(models, data, tests, histories)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean over seeds and its standard error."""
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5


def means(measured: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each number over seeds."""
    return {name: statistics.mean(run[name] for run in measured) for name in measured[0]}
