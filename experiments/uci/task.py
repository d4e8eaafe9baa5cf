"""Regression on a UCI data set: its data, network, likelihood and metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import lastlayer as ll

from ..backbones import mlp
from ..baselines.fitted import Fitted
from ..datasets import uci
from ..harness.likelihood import Gaussian
from ..harness.statistics import Metric
from ..harness.task import Supervised

LEVEL = 0.9  # of the intervals

NLL, RMSE = Metric("nll", "NLL"), Metric("rmse", "RMSE")
COVERAGE = Metric("coverage", "coverage of 90 % intervals, in percent", 1, scale=100)
WIDTH, CRPS = Metric("width", "width of 90 % intervals"), Metric("crps", "CRPS", 3)


@dataclass(frozen=True, kw_only=True)
class TableTask(Supervised):
    """A table with one target, standardised; metrics are in the units of the target."""

    target_scale: float = 1.0

    @property
    def likelihood(self) -> Gaussian:
        """Gaussian about one output."""
        return Gaussian(1)

    @property
    def num_features(self) -> int:
        """The width of the last hidden layer."""
        return mlp.WIDTH

    def backbone(self, **options: Any) -> nn.Sequential:
        """The paper's network."""
        return mlp.features(self.train[0].shape[-1], **options)

    def evaluate(self, model: Any) -> dict[str, Any]:
        """Metrics on test data."""
        torch.manual_seed(self.seed)  # of predictions that draw
        found = ll.metrics.evaluate(model, self.test, levels=(LEVEL,), progress=False)
        scale = self.target_scale
        return {
            "nll": found["nll"] + math.log(scale),
            "rmse": scale * found["rmse"],
            "crps": scale * found["crps"],
            "coverage": found[f"coverage_{LEVEL}"],
            "width": scale * found[f"width_{LEVEL}"],
        }

    def describe(self, notes: Mapping[str, Any]) -> dict[str, Any]:
        """Notes in the units of the target, with metrics of alternative models."""
        found: dict[str, Any] = {}
        for name, value in notes.items():
            if "nll" in name and value is not None:
                found[name] = value + math.log(self.target_scale)
            elif "rmse" in name:
                found[name] = value * self.target_scale
            elif name == "tried":
                found[name] = [self.describe(one) for one in value]
            elif name == "alternatives":
                found[name] = {key: self.evaluate(model) for key, model in value.items()}
            else:
                found[name] = value
        return found


def task(dataset: str, seed: int, method: Fitted) -> TableTask:
    """The data of one seed, with targets scaled as the method wants them."""
    split = uci.split(dataset, seed, scale_targets=method.scale_targets)
    return TableTask(seed=seed, **split._asdict())
