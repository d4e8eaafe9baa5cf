"""The base class of scores that are fitted to features in one pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .._checks import (
    check_count,
    check_features,
    check_labels,
    check_positive,
    check_range,
    check_weight,
)
from .._data import Data, part_of
from .._processes import Processes
from .._streaming import device_of, predictions
from ..functional.shared_gaussians import on_sphere, signed_power

Self = TypeVar("Self", bound="FeatureScore")


class FeatureScore(nn.Module, ABC):
    """A score of features (*batch, N), higher further out, that has seen training features.

    What it has seen is in buffers, which keep their precision when the module is cast. Training
    data may come in any split, and parts that were seen elsewhere are merged.

    Args:
        num_features: N.
        num_classes: K; one class needs no labels.
        unit_length: whether features are scaled to length one. The length of features differs
            between data sets for reasons, contrast say, that hide how unlike they are.
        power: of the features before that, keeping signs. The square root of features that are
            never negative, as after a ReLU, is nearer to Gaussian.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int = 1,
        *,
        unit_length: bool = False,
        power: float = 1.0,
    ) -> None:
        super().__init__()
        check_count("num_features", num_features)
        check_count("num_classes", num_classes)
        check_positive("power", power)
        self.num_features, self.num_classes = num_features, num_classes
        self.unit_length, self.power = unit_length, power

    @abstractmethod
    def update(
        self, features: Tensor, target: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        """Add a batch of examples; any split into batches gives the same.

        Args:
            features: (*batch, N).
            target: class indices, (*batch,); none is needed for one class.
            weight: (*batch,); examples of weight zero are ignored, whatever their label.
        """

    def all_reduce(self, group: Any = None) -> None:
        """Add what all processes of a `torch.distributed` group have seen, in place."""
        raise TypeError(f"{type(self).__name__} cannot be fitted by several processes")

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """The score of features (*batch, N), (*batch,)."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Arguments that make a score like this one, which has seen nothing."""

    def _check_alike(self, other: FeatureScore) -> None:
        """Raise unless another score is of the same kind and sees features in the same form."""
        mine = (type(self), self.num_features, self.unit_length, self.power)
        if mine != (type(other), other.num_features, other.unit_length, other.power):
            raise ValueError(
                "only scores of the same class, num_features, unit_length and power can be "
                f"merged, got {self} and {other}"
            )

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        return (
            f"num_features={self.num_features}, num_classes={self.num_classes}, "
            f"unit_length={self.unit_length}, power={self.power:g}"
        )

    def _forget(self) -> None:
        """Drop what was derived from the buffers, which have changed."""

    def _labels(self, features: Tensor, target: Tensor | None, weight: Tensor | None) -> Tensor:
        """Checked labels of a batch, flat."""
        if target is None:
            if self.num_classes > 1:
                raise ValueError(
                    f"a score of num_classes={self.num_classes} needs labels; pass them as "
                    "target, or fit a single class without any"
                )
            target = features.new_zeros(features.shape[:-1], dtype=torch.int64)
        labels = check_labels(target, features.shape[:-1])
        if weight is not None:
            labels = labels.where(check_weight(weight, labels.shape, None) != 0, 0)
        check_range(labels, self.num_classes)
        return labels.flatten()

    def _points(self, features: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """Checked features in the form in which they are scored."""
        check_tensor(features)
        points = features.to(dtype) if features.is_floating_point() else features
        check_features(points, self.num_features, next(self.buffers()).new_empty(0).to(dtype))
        if self.unit_length:
            return on_sphere(points, self.power)
        return points if self.power == 1 else signed_power(points, self.power)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move the statistics; they stay float64 when the module is cast."""
        before = dict(self.named_buffers())
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in list(self.named_buffers()):
            if buffer.dtype != before[name].dtype:
                setattr(self, name, before[name].to(buffer.device))
        self._forget()
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._forget()


def fit_first(
    make: Callable[[Tensor], Self],
    model: Callable[[Any], Any],
    data: Data,
    batch_size: int,
    distributed: bool,
    progress: bool | None,
) -> Self:
    """Make a score for the first features that a model returns, and fit it to all of them.

    Args:
        make: from features to a score of their width.
        model: from inputs to features.
        data: inputs, labels if the score needs them, weights if any.
        batch_size: of tensors and Datasets.
        distributed: whether all processes fit it together, each to its part of the data.
        progress: whether to show a progress bar; None for where there is a terminal.
    """
    processes = Processes.of(distributed, device_of(model))
    data = part_of((data,) if isinstance(data, Tensor) else data, processes.rank, processes.size)
    score = None
    for features, batch in predictions(model, data, batch_size=batch_size, progress=progress):
        check_tensor(features)
        if score is None:  # the same on all processes, for the first one's features
            score = make(processes.objects(features)[0].to(features.device))
        target = None if score.num_classes == 1 else batch.target
        score.update(features, target, batch.weight)
    if score is None:
        raise ValueError("there is no example to fit to: data is empty")
    if processes.size > 1:
        score.all_reduce()
    return score


def power_for(features: Tensor) -> float:
    """The power that brings features nearer to Gaussian: ½ if none is negative, else 1."""
    return 1.0 if bool((features < 0).any()) else 0.5


def check_tensor(features: object) -> None:
    """Raise unless features are a tensor."""
    if not isinstance(features, Tensor):
        raise TypeError(
            f"a score of features takes a tensor of features, got {type(features).__name__}; pass "
            "network.backbone rather than the network"
        )
