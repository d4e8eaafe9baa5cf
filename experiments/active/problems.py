"""Pools to label from: rows of tables, and pretrained features of reviews and of images."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import lastlayer as ll
from lastlayer.heads import Head

from ..datasets import folder, imdb, uci
from ..harness.statistics import Metric
from ..harness.task import Task
from ..ood.encoders import image_features

Pair = tuple[Tensor, Tensor]
Model = ll.Network | Head

ERROR, NLL = Metric("error", "error", 3), Metric("nll", "NLL", 3)
METRICS = (ERROR, NLL)

TABLES = ("concrete", "energy", "power", "wine")
REVIEWS, IMAGES = "imdb", "cifar10"
TEST = 1 / 3  # of the rows of a table; the others are the pool
NUM_WAVES = 128  # features of a table
ENCODER, NUM_POOL, NUM_TEST = "minilm", 5_000, 5_000  # reviews of a seed
NUM_IMAGES, NUM_POOL_IMAGES, NUM_TEST_IMAGES = 3_000, 2_500, 2_000  # to draw pools from, of a seed
NUM_COMPONENTS = 128  # principal components of the features of images


@dataclass(frozen=True, kw_only=True)
class PoolTask(Task):
    """Inputs or fixed features of a pool and of test data, with their targets.

    Attributes:
        pool: inputs (n, d) and targets, which a method may look at once it has asked for them.
        test: inputs and targets by which it is judged.
    """

    pool: Pair
    test: Pair

    @abstractmethod
    def fitted(self, rows: Tensor) -> Model:
        """A model fitted to the labels of some rows of the pool."""

    @abstractmethod
    def error(self, predictive: Any, target: Tensor) -> float:
        """The error of predictions of test data."""

    @torch.no_grad()
    def score(self, model: Model) -> dict[str, float]:
        """Error and NLL on test data."""
        predictive: Any = model(self.test[0])
        nll = -float(predictive.log_prob(self.test[1]).mean())
        return {ERROR.name: self.error(predictive, self.test[1]), NLL.name: nll}

    def evaluate(self, model: list[dict[str, float]]) -> dict[str, Any]:
        """The curves, from the scores after each round."""
        return {name: [round(one[name], 5) for one in model] for name in model[0]}


class TableTask(PoolTask):
    """A table: features are trained anew after every round; the error is RMSE."""

    def fitted(self, rows: Tensor) -> ll.Network:
        """Lengths of waves and noise by the evidence, the exact posterior of the last layer."""
        from lastlayer.botorch import LastLayerModel, Waves

        inputs, target = (part[rows] for part in self.pool)
        torch.manual_seed(self.seed)  # of the initial weights
        model = LastLayerModel(
            inputs,
            target,
            backbone=Waves(inputs.shape[-1], NUM_WAVES),
            num_features=NUM_WAVES,
            input_transform=None,
            outcome_transform=None,
        )
        return model.fit().network

    def error(self, predictive: Any, target: Tensor) -> float:
        """RMSE."""
        return float((predictive.mean - target).square().mean().sqrt())


@dataclass(frozen=True, kw_only=True)
class LabelTask(PoolTask):
    """Classes: a discriminative head, fitted until it converges; the error is that of labels.

    Attributes:
        num_classes: K.
        prior_variance: times N, chosen on training data that were held out (decision 28).
    """

    num_classes: int
    prior_variance: float

    def fitted(self, rows: Tensor) -> ll.DiscriminativeClassification:
        """The optimum of the ELBO."""
        features, target = (part[rows] for part in self.pool)
        width = features.shape[-1]
        prior = ll.Prior(variance=self.prior_variance / width, bias_variance=1.0)
        torch.manual_seed(self.seed)  # of the initial mean
        head = ll.DiscriminativeClassification(
            width,
            self.num_classes,
            num_data=len(rows),
            bias=True,
            prior=prior,
            dtype=features.dtype,
        )
        head.fit_features(features, target)
        return head

    def error(self, predictive: Any, target: Tensor) -> float:
        """The fraction of wrong labels."""
        return float((predictive.probs().argmax(-1) != target).float().mean())


def table_task(name: str, seed: int) -> TableTask:
    """A table of the UCI repository, split at random.

    The pool, which is known but for its targets, scales inputs to the unit cube; targets are
    standardised.
    """
    inputs, target = uci.load(name)
    order = np.random.default_rng(seed).permutation(len(target))
    test, pool = np.split(order, [round(TEST * len(target))])
    low, width = inputs[pool].min(0), np.ptp(inputs[pool], 0)
    width[width == 0] = 1.0  # a column that is constant here carries nothing
    inputs = (inputs - low) / width
    target = (target - target[pool].mean()) / target[pool].std()

    def pair(rows: np.ndarray) -> Pair:
        return torch.from_numpy(inputs[rows]), torch.from_numpy(target[rows])[:, None]

    return TableTask(seed=seed, pool=pair(pool), test=pair(test))


def _unit(features: Tensor) -> Tensor:
    """Features of unit mean square in each row."""
    return F.normalize(features, dim=-1) * math.sqrt(features.shape[-1])


def reviews_task(seed: int) -> LabelTask:
    """Some training and some test reviews."""
    data = imdb.load(ENCODER)

    def pair(part: Pair, size: int) -> Pair:
        features, label = imdb.sample(part, min(size, len(part[0])), seed)
        return _unit(features), label

    return LabelTask(
        seed=seed,
        pool=pair(data.train, NUM_POOL),
        test=pair(data.test, NUM_TEST),
        num_classes=2,
        prior_variance=4.0,
    )


@cache
def _images() -> tuple[Pair, Pair]:
    """Principal components of the features of training and of test images, and labels."""
    store = folder.root() / "ood"  # which has them already, if that experiment ran
    train = image_features(store, "cifar10/train", 0, NUM_IMAGES)
    test = image_features(store, "cifar10/test", 0, NUM_TEST_IMAGES)
    mean = train[0].mean(0)
    axes = torch.linalg.svd(train[0] - mean, full_matrices=False).Vh[:NUM_COMPONENTS].mT
    return tuple((_unit((x - mean) @ axes), y) for x, y in (train, test))  # type: ignore[return-value]


def images_task(seed: int) -> LabelTask:
    """Some training images, and test images."""
    train, test = _images()
    rows = torch.from_numpy(np.random.default_rng(seed).permutation(len(train[1])))
    rows = rows[:NUM_POOL_IMAGES]
    pool = train[0][rows], train[1][rows]
    return LabelTask(seed=seed, pool=pool, test=test, num_classes=10, prior_variance=16.0)


def task(name: str, seed: int) -> PoolTask:
    """A problem by name."""
    if name in TABLES:
        return table_task(name, seed)
    return reviews_task(seed) if name == REVIEWS else images_task(seed)
