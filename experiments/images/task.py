"""Classes of images: the data, the backbones and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import lastlayer as ll

from ..backbones import small, wrn
from ..backbones.pixels import FlipAndShift
from ..datasets import images
from ..harness.likelihood import Categorical
from ..harness.statistics import Metric
from ..harness.task import Supervised

Pair = tuple[Tensor, Tensor]

CLASSES = {"cifar10": 10, "cifar100": 100}
NEAR = {"cifar10": "cifar100", "cifar100": "cifar10"}  # out of distribution, but alike
HELD_OUT = 0.05  # of the training images
BATCH_SIZE = 200  # of evaluation: methods that draw see as many times their number of draws

ACCURACY = Metric("accuracy", "accuracy", 1, scale=100, higher_is_better=True)
ECE, NLL = Metric("ece", "ECE", 3), Metric("nll", "NLL", 3)
SVHN = Metric("auroc_svhn", "SVHN AUROC", 3, higher_is_better=True)
OTHER = Metric("auroc_near", "other CIFAR's AUROC", 3, higher_is_better=True)
METRICS = (ACCURACY, ECE, NLL, SVHN, OTHER)


class Backbone(NamedTuple):
    """A network for images of 32 × 32 pixels, and what goes with it in training."""

    make: Callable[[Tensor], nn.Module]  # from training images
    num_features: int
    shift: int  # of augmentation, in pixels
    groups: Mapping[str, Mapping[str, float]] | None = None  # see `ll.fit`


BACKBONES = {
    "small": Backbone(small.features, small.NUM_FEATURES, 2, small.GROUPS),
    "wrn-28-10": Backbone(wrn.features, wrn.NUM_FEATURES, 4),
}


@dataclass(frozen=True, kw_only=True)
class ImageTask(Supervised):
    """A data set of images with a backbone, and two others that it should not know.

    Args:
        dataset: its name.
        backbone_name: of `BACKBONES`.
        held_out: training images, with labels, that no network is trained on.
        outside: images of other data sets, (T, 3, 32, 32), by the name of the metric.
    """

    dataset: str
    backbone_name: str = "small"
    validation: Any = None  # the number of epochs is given
    held_out: Pair
    outside: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        """Data set and backbone."""
        return {"dataset": self.dataset, "backbone": self.backbone_name}

    @property
    def likelihood(self) -> Categorical:
        """As many classes as the data set has."""
        return Categorical(CLASSES[self.dataset])

    @property
    def num_features(self) -> int:
        """The width of the features."""
        return BACKBONES[self.backbone_name].num_features

    def backbone(self, **options: Any) -> nn.Module:
        """A new network, which begins with the statistics of the training images."""
        return BACKBONES[self.backbone_name].make(self.train[0], **options)

    @property
    def fit_options(self) -> dict[str, Any]:
        """Random flips and shifts, and the backbone's groups of parameters."""
        about = BACKBONES[self.backbone_name]
        return {"augment": FlipAndShift(about.shift), "groups": about.groups}

    @torch.no_grad()
    def evaluate(self, model: Any) -> dict[str, Any]:
        """Metrics on test images, and how well a score tells them from images of other kinds.

        The score is the model's own, if it has one (`scored`), else one less the probability of
        the most probable class.
        """
        torch.manual_seed(self.seed)  # of predictions that draw
        metrics, inside = ll.metrics.ClassificationMetrics(), []
        labels = self.test[1].split(BATCH_SIZE)
        for (predictive, score), label in zip(_scored(model, self.test[0]), labels, strict=True):
            metrics.update(predictive, label)
            inside.append(score)
        found = {name: value.item() for name, value in metrics.compute().items()}
        for name, pictures in self.outside.items():
            outside = torch.cat([score for _, score in _scored(model, pictures)])
            found[name] = ll.metrics.ood(torch.cat(inside), outside)["auroc"]
        return {metric.name: found[metric.name] for metric in METRICS if metric.name in found}


def _scored(model: Any, pictures: Tensor) -> Iterator[tuple[Any, Tensor]]:
    """Predictives and scores of images, a batch at a time."""
    for batch in pictures.split(BATCH_SIZE):
        if hasattr(model, "scored"):
            yield model.scored(batch)
        else:
            predictive = model(batch)
            yield predictive, ll.ood.max_probability(predictive)


def task(dataset: str, backbone: str, seed: int, networks: Path | None = None) -> ImageTask:
    """A data set; the same images are held out for every seed."""
    pictures, labels = images.load(f"{dataset}/train")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    count = round(HELD_OUT * len(labels))
    held_out, train = order[:count], order[count:]
    return ImageTask(
        seed=seed,
        dataset=dataset,
        backbone_name=backbone,
        train=(pictures[train], labels[train]),
        held_out=(pictures[held_out], labels[held_out]),
        test=images.load(f"{dataset}/test"),
        outside={
            SVHN.name: images.load("svhn/test")[0],
            OTHER.name: images.load(f"{NEAR[dataset]}/test")[0],
        },
        networks=networks,
    )
