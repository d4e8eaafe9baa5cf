"""The base class of scores that are fitted to features in one pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .._checks import check_count, check_features, check_labels, check_range, check_weight
from .._data import Data
from .._streaming import predictions

Self = TypeVar("Self", bound="FeatureScore")


class FeatureScore(nn.Module, ABC):
    """A score of features (*batch, N), higher further out, that has seen training features.

    What it has seen is in buffers, in double precision also when the module is cast. Training
    data may come in any split, and parts that were seen elsewhere are merged.

    Args:
        num_features: N.
        num_classes: K; one class needs no labels.
    """

    def __init__(self, num_features: int, num_classes: int = 1) -> None:
        super().__init__()
        check_count("num_features", num_features)
        check_count("num_classes", num_classes)
        self.num_features, self.num_classes = num_features, num_classes

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

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """The score of features (*batch, N), (*batch,)."""

    def _forget(self) -> None:
        """Drop what was derived from the buffers, which have changed."""

    def _labels(self, features: Tensor, target: Tensor | None, weight: Tensor | None) -> Tensor:
        """Checked labels of a batch, flat."""
        if target is None:
            if self.num_classes > 1:
                raise ValueError(
                    f"densities of num_classes={self.num_classes} need labels; pass them as "
                    "target, or fit a single class without any"
                )
            target = features.new_zeros(features.shape[:-1], dtype=torch.int64)
        labels = check_labels(target, features.shape[:-1])
        if weight is not None:
            labels = labels.where(check_weight(weight, labels.shape, None) != 0, 0)
        check_range(labels, self.num_classes)
        return labels.flatten()

    def _wide(self, features: Tensor) -> Tensor:
        """Checked features in double precision."""
        check_tensor(features)
        wide = features.double() if features.is_floating_point() else features
        check_features(wide, self.num_features, next(self.buffers()).new_empty(0).double())
        return wide

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
    progress: bool | None,
) -> Self:
    """Make a score for the first features that a model returns, and fit it to all of them.

    Args:
        make: from features to a score of their width.
        model: from inputs to features.
        data: inputs, labels if the score needs them, weights if any.
        batch_size: of tensors and Datasets.
        progress: whether to show a progress bar; None for where there is a terminal.
    """
    score = None
    for features, batch in predictions(model, data, batch_size=batch_size, progress=progress):
        check_tensor(features)
        score = make(features) if score is None else score
        target = None if score.num_classes == 1 else batch.target
        score.update(features, target, batch.weight)
    if score is None:
        raise ValueError("there is no example to fit to: data is empty")
    return score


def check_tensor(features: object) -> None:
    """Raise unless features are a tensor."""
    if not isinstance(features, Tensor):
        raise TypeError(
            f"a feature density takes a tensor of features, got {type(features).__name__}; pass "
            "network.backbone rather than the network"
        )
