"""Sentiment from the features of reviews: the data of one seed, the network and the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import lastlayer as ll

from ..backbones import mlp
from ..datasets import imdb
from ..harness.likelihood import Categorical
from ..harness.statistics import Metric
from ..harness.task import Supervised

WIDTH, DEPTH = 128, 2  # the paper has two linear layers before the head, and names no width

ACCURACY = Metric("accuracy", "accuracy, in percent", 1, scale=100, higher_is_better=True)
NLL, ECE = Metric("nll", "NLL", 3), Metric("ece", "ECE", 3)
METRICS = (ACCURACY, NLL, ECE)


@dataclass(frozen=True, kw_only=True)
class SentimentTask(Supervised):
    """Positive or negative: two classes, and nothing held out but test data."""

    validation: Any = None

    @property
    def likelihood(self) -> Categorical:
        """Two classes."""
        return Categorical(2)

    @property
    def num_features(self) -> int:
        """The width of the last hidden layer."""
        return WIDTH

    def backbone(self, **options: Any) -> nn.Sequential:
        """Two linear layers, each with a leaky ReLU."""
        return mlp.features(self.train[0].shape[-1], width=WIDTH, depth=DEPTH, **options)

    def evaluate(self, model: Any) -> dict[str, Any]:
        """Metrics on test data."""
        torch.manual_seed(self.seed)  # of predictions that draw
        found = ll.metrics.evaluate(model, self.test, progress=False)
        return {metric.name: found[metric.name] for metric in METRICS}


def task(features: str, size: int, seed: int) -> SentimentTask:
    """Some training reviews, and all test reviews."""
    data = imdb.load(features)
    *train, groups = imdb.sample((*data.train, data.groups), size, seed)
    return SentimentTask(seed=seed, train=tuple(train), test=data.test, groups=groups)


def tuning_task(features: str, size: int, seed: int) -> SentimentTask:
    """Some training reviews, and in place of test reviews training reviews of other films."""
    data = imdb.load(features)
    train, others = imdb.held_out(data.train, size, seed, data.groups)
    return SentimentTask(seed=seed, train=train, test=others)
