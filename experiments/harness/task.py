"""What a method is tried on: the data of one seed, and how a model of them is judged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset

from .likelihood import Likelihood


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A problem as one seed poses it."""

    seed: int

    @abstractmethod
    def evaluate(self, model: Any) -> dict[str, Any]:
        """The metrics of what a method made, for the record."""

    def describe(self, notes: Mapping[str, Any]) -> dict[str, Any]:
        """What a method notes about its training, in the units of the record."""
        return dict(notes)


@dataclass(frozen=True, kw_only=True)
class Supervised(Task):
    """Inputs with targets: (inputs, target) as tensors, or anything else that `fit` takes.

    Validation data may be None: then nothing is chosen by them.
    """

    train: Any
    validation: Any
    test: Any
    groups: Tensor | None = None  # of training examples, which cross-validation holds out together
    networks: Path | None = None  # folder in which trained networks are kept; None to keep none

    @property
    def identity(self) -> dict[str, Any]:
        """What the data and the backbone are, for networks that are kept; fit for JSON."""
        raise NotImplementedError(f"the networks of a {type(self).__name__} are not kept")

    @property
    def fit_options(self) -> dict[str, Any]:
        """Options of `fit` that come with the data and the backbone, as augmentation does."""
        return {}

    @property
    @abstractmethod
    def likelihood(self) -> Likelihood:
        """How targets follow from outputs."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """The width of the features of `backbone`."""

    @abstractmethod
    def backbone(self, **options: Any) -> nn.Module:
        """A new network from inputs to features, (*batch, num_features)."""

    @property
    def num_data(self) -> int:
        """The number of training examples."""
        return len(self.train[0] if isinstance(self.train, tuple) else self.train)

    @property
    def development(self) -> Any:
        """Training and validation data together."""
        if self.validation is None:
            return self.train
        if isinstance(self.train, tuple):
            parts = zip(self.train, self.validation, strict=True)
            return tuple(torch.cat(pair) for pair in parts)
        return ConcatDataset([self.train, self.validation])
