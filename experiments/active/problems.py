"""Pools to label from: tables on random features, and film reviews on those of an encoder."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import lastlayer as ll
from lastlayer.heads import Head

from ..datasets import imdb, uci
from ..harness.statistics import Metric
from ..harness.task import Task

Pair = tuple[Tensor, Tensor]

ERROR, NLL = Metric("error", "error", 3), Metric("nll", "NLL", 3)
METRICS = (ERROR, NLL)

TABLES = ("concrete", "energy", "power", "wine")
REVIEWS = "imdb"
TEST = 1 / 3  # of the rows of a table; the others are the pool
WIDTH = 128  # random features of a table
NOISE_ITERATIONS = 30  # of noise, prior and posterior in turn, on a table
ENCODER, NUM_POOL, NUM_TEST = "minilm", 5_000, 5_000  # reviews of a seed


@dataclass(frozen=True, kw_only=True)
class PoolTask(Task):
    """Fixed features of a pool and of test data, with their targets.

    Attributes:
        pool: features (n, N) and targets, which a method may look at once it has asked for them.
        test: features and targets by which it is judged.
    """

    pool: Pair
    test: Pair

    @abstractmethod
    def fitted(self, rows: Tensor) -> Head:
        """A head fitted to the labels of some rows of the pool."""

    @abstractmethod
    def error(self, predictive: Any, target: Tensor) -> float:
        """The error of predictions of test data."""

    @torch.no_grad()
    def score(self, head: Head) -> dict[str, float]:
        """Error and NLL on test data."""
        predictive: Any = head(self.test[0])
        nll = -float(predictive.log_prob(self.test[1]).mean())
        return {ERROR.name: self.error(predictive, self.test[1]), NLL.name: nll}

    def evaluate(self, model: list[dict[str, float]]) -> dict[str, Any]:
        """The curves, from the scores after each round."""
        return {name: [round(one[name], 5) for one in model] for name in model[0]}


class TableTask(PoolTask):
    """A table: a regression head, its noise and its prior in closed form; the error is RMSE."""

    def fitted(self, rows: Tensor) -> ll.Regression:
        """Exact posterior, noise and prior's variance by the evidence."""
        features, target = (part[rows] for part in self.pool)
        prior = ll.Prior(variance="evidence", noise_scale=0.01)
        torch.manual_seed(self.seed)  # of the initial mean, from which the variance is estimated
        head = ll.Regression(
            features.shape[-1], 1, num_data=len(rows), bias=True, prior=prior, dtype=features.dtype
        )
        head.fit_exact(features, target, estimate_noise=True, max_iterations=NOISE_ITERATIONS)
        return head

    def error(self, predictive: Any, target: Tensor) -> float:
        """RMSE."""
        return float((predictive.mean - target).square().mean().sqrt())


class ReviewsTask(PoolTask):
    """Film reviews: a discriminative head, fitted until it converges; the error is that of labels.

    The prior's variance, 4/N, was chosen on training reviews outside the pool (decision 28).
    """

    def fitted(self, rows: Tensor) -> ll.DiscriminativeClassification:
        """The optimum of the ELBO."""
        features, target = (part[rows] for part in self.pool)
        width = features.shape[-1]
        prior = ll.Prior(variance=4 / width, bias_variance=1.0)
        torch.manual_seed(self.seed)  # of the initial mean
        head = ll.DiscriminativeClassification(
            width, 2, num_data=len(rows), bias=True, prior=prior, dtype=features.dtype
        )
        head.fit_features(features, target)
        return head

    def error(self, predictive: Any, target: Tensor) -> float:
        """The fraction of wrong labels."""
        return float((predictive.probs().argmax(-1) != target).float().mean())


def table_task(name: str, seed: int) -> TableTask:
    """A table of the UCI repository, split at random; inputs and target standardised by the pool.

    Features are those of one hidden layer of ReLU units with random weights.
    """
    inputs, target = uci.load(name)
    random = np.random.default_rng(seed)
    test, pool = np.split(random.permutation(len(target)), [round(TEST * len(target))])
    spread = inputs[pool].std(0)
    spread[spread == 0] = 1.0  # a column that is constant here carries nothing
    inputs = (inputs - inputs[pool].mean(0)) / spread
    target = (target - target[pool].mean()) / target[pool].std()
    size = inputs.shape[1] + 1
    weight = torch.from_numpy(random.normal(scale=math.sqrt(2 / size), size=(WIDTH, size))).float()

    def pair(rows: np.ndarray) -> Pair:
        x, y = torch.from_numpy(inputs[rows]).float(), torch.from_numpy(target[rows]).float()
        return F.linear(F.pad(x, (0, 1), value=1.0), weight).relu(), y[:, None]

    return TableTask(seed=seed, pool=pair(pool), test=pair(test))


def reviews_task(seed: int) -> ReviewsTask:
    """Some training and some test reviews, features scaled to unit mean square."""
    data = imdb.load(ENCODER)

    def pair(part: Pair, size: int) -> Pair:
        features, label = imdb.sample(part, min(size, len(part[0])), seed)
        return F.normalize(features, dim=-1) * math.sqrt(features.shape[-1]), label

    return ReviewsTask(seed=seed, pool=pair(data.train, NUM_POOL), test=pair(data.test, NUM_TEST))
