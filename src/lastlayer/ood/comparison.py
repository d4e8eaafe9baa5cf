"""All scores side by side, on data that is considered out of distribution."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .._data import Data
from .._streaming import predictions
from ..predictive import Predictive
from ._base import FeatureScore, power_for
from ._models import Reader, reader
from .density import FeatureDensity
from .detection import detection
from .logits import DecisionBoundaryDistance, VirtualLogitMatching
from .mahalanobis import RelativeMahalanobis
from .neighbors import NearestNeighbors
from .predictive_scores import SCORES

METRICS = ("auroc", "aupr", "fpr95")
PLAIN_DENSITY = "FeatureDensity(normalized=False)"
DENSITY_WITH_LENGTHS = "FeatureDensity(unit_length=False)"


@dataclass(frozen=True)
class Comparison:
    """Scores of a model, and how well each detects. `print` shows a table, the best first.

    Attributes:
        in_scores: of in-distribution examples by each score, (num_examples,).
        out_scores: by each score, of the examples of each other data set.
        metrics: by each score and data set, as of `detection`.
        fitted: the scores of features, to use and to `save`; call them on features.
    """

    in_scores: dict[str, Tensor]
    out_scores: dict[str, dict[str, Tensor]]
    metrics: dict[str, dict[str, dict[str, float]]]
    fitted: dict[str, FeatureScore]

    def mean(self, score: str, metric: str = "auroc") -> float:
        """The mean of a metric over the data sets."""
        values = [metrics[metric] for metrics in self.metrics[score].values()]
        return sum(values) / len(values)

    def ranking(self) -> list[str]:
        """Names of the scores by their mean AUROC, the best first."""
        return sorted(self.metrics, key=self.mean, reverse=True)

    def __str__(self) -> str:
        """A table, a row for each score."""
        names = list(next(iter(self.metrics.values())))
        heads = [f"{name} {metric}" for name in names for metric in METRICS]
        width = max(map(len, self.metrics))
        lines = ["  ".join(["score".ljust(width), *heads])]
        for score in self.ranking():
            values = [self.metrics[score][name][metric] for name in names for metric in METRICS]
            cells = [
                f"{value:.3f}".rjust(len(head)) for value, head in zip(values, heads, strict=True)
            ]
            lines.append("  ".join([score.ljust(width), *cells]))
        return "\n".join(lines)


def compare(
    model: nn.Module,
    train: Data,
    in_distribution: Data | Tensor,
    out_of_distribution: Mapping[str, Data | Tensor],
    *,
    batch_size: int = 1024,
    progress: bool | None = None,
) -> Comparison:
    """Compare all scores that a model has, by AUROC, AUPR and FPR95 (the protocol of OpenOOD).

    One pass over the training data fits the scores of features, and one pass over each other data
    set computes all scores.

    Args:
        model: a `Network`, a `Plain` model, or a classifier that returns logits, whose features
            are what its last linear layer takes.
        train: inputs and labels that the model was trained on, and weights if any.
        in_distribution: held-out inputs of the same kind; targets are ignored.
        out_of_distribution: other inputs, by names of your choice.
        batch_size: of tensors and Datasets.
        progress: whether to show progress bars; None for where there is a terminal.

    Returns:
        The comparison; `print` it, and draw it by `plots.ood_comparison`.
    """
    if not isinstance(out_of_distribution, Mapping) or not len(out_of_distribution):
        raise ValueError(
            'there is nothing to detect: name at least one data set in a dict, {"others": inputs}'
        )
    read = reader(model, train, batch_size)
    fitted = _fit(read, train, batch_size, progress)
    inside = _score(read, fitted, in_distribution, batch_size, progress)
    outside = {
        name: _score(read, fitted, data, batch_size, progress)
        for name, data in out_of_distribution.items()
    }
    out_scores = {
        score: {name: found[score] for name, found in outside.items()} for score in inside
    }
    metrics = {
        score: {name: detection(inside[score], values) for name, values in others.items()}
        for score, others in out_scores.items()
    }
    return Comparison(inside, out_scores, metrics, fitted)


def _fit(
    read: Reader, data: Data, batch_size: int, progress: bool | None
) -> dict[str, FeatureScore]:
    """All scores of features, fitted in one pass."""
    fitted: dict[str, FeatureScore] = {}
    for (features, _), batch in predictions(read, data, batch_size=batch_size, progress=progress):
        fitted = fitted or _make(read, features)
        for score in fitted.values():
            target = None if score.num_classes == 1 else batch.target
            score.update(features, target, batch.weight)
    if not fitted:
        raise ValueError("there is no example to fit to: data is empty")
    if read.num_classes > 1:  # of one class, the density is not normalised anyway
        density = copy.deepcopy(fitted["FeatureDensity"])
        assert isinstance(density, FeatureDensity)
        density.normalized = False
        fitted[PLAIN_DENSITY] = density
    return fitted


def _make(read: Reader, features: Tensor) -> dict[str, FeatureScore]:
    """New scores for features like these."""
    size, place = features.shape[-1], features.device
    power = power_for(features)
    made: list[FeatureScore] = [
        FeatureDensity(size, read.num_classes, power=power, device=place),
        NearestNeighbors(size, device=place),
    ]
    if read.num_classes > 1:
        made.append(RelativeMahalanobis(size, read.num_classes, device=place))
    if read.layer is not None:
        made += [VirtualLogitMatching(*read.layer), DecisionBoundaryDistance(*read.layer)]
    named = {type(score).__name__: score for score in made}
    lengths = FeatureDensity(size, read.num_classes, unit_length=False, device=place)
    return named | {DENSITY_WITH_LENGTHS: lengths}


def _score(
    read: Reader,
    fitted: dict[str, FeatureScore],
    data: Data | Tensor,
    batch_size: int,
    progress: bool | None,
) -> dict[str, Tensor]:
    """All scores of every example."""
    parts: list[dict[str, Tensor]] = []
    for (features, predictive), _ in predictions(
        read, data, batch_size=batch_size, progress=progress
    ):
        with torch.no_grad():
            found = {name: score(features) for name, score in fitted.items()}
        parts.append(_of_predictive(predictive) | found)
    if not parts:
        raise ValueError("there is no example to score: data is empty")
    return {name: torch.cat([part[name].flatten().cpu() for part in parts]) for name in parts[0]}


def _of_predictive(predictive: Predictive) -> dict[str, Tensor]:
    """The scores that a predictive has."""
    found = {}
    for name, score in SCORES.items():
        with suppress(TypeError):  # as a predictive says of what it lacks
            found[name] = score(predictive)
    return found
