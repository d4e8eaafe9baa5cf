"""What all methods share: knobs, a model with two calls, and how it is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

import lastlayer as ll

from .datasets.uci import NAMES, Pair, Split

AnyMethod = TypeVar("AnyMethod", bound="Method")

# Knobs that are options of `fit_many`.
OPTIONS = (
    "epochs",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "clip",
    "schedule",
    "initialize",
)

# At most, for features that are not variational (paper, appendix D, table of maximum epochs).
EPOCHS = {
    "boston": 3000,
    "concrete": 3000,
    "energy": 2000,
    "power": 3000,
    "wine": 1000,
    "yacht": 2000,
}


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A way to make and train a model; the fields are its knobs, here those of the paper's VBLL.

    A model has the two calls of this package: `model(x)` returns a predictive, `model(x, y)` the
    loss. All seeds train as one batched model. The number of epochs is chosen by the NLL of
    validation data, and the model trained anew for as many on training and validation data.
    """

    label: ClassVar[str]
    single_pass: ClassVar[bool] = True
    num_seeds: ClassVar[int] = 20
    fewer_seeds: ClassVar[Mapping[str, int]] = {}  # on data sets where a seed takes long
    datasets: ClassVar[tuple[str, ...]] = NAMES
    # For estimates of time: of a step, and how much of it all seeds share, in units of one seed's.
    relative_cost: ClassVar[float] = 1.0
    common_cost: ClassVar[float] = 10.0

    epochs: int  # at most
    batch_size: int = 32  # all knobs here: paper, appendix D
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    clip: float = 1.0
    schedule: str = "constant"
    validate_every: int = 10
    patience: int | None = None  # the paper names none
    scale_targets: bool = False  # targets are centred only
    initialize: bool = True  # heads start at the scale of the targets; the paper does not say

    @classmethod
    def for_dataset(cls: type[AnyMethod], dataset: str, **changes: Any) -> AnyMethod:
        """The method with the knobs that depend on the data set."""
        knobs = {"epochs": EPOCHS[dataset], "batch_size": 256 if dataset == "power" else 32}
        return cls(**knobs | changes)

    @classmethod
    def planned_seeds(cls) -> dict[str, int]:
        """How many seeds it is run with, by data set."""
        return {dataset: cls.fewer_seeds.get(dataset, cls.num_seeds) for dataset in cls.datasets}

    def seeds_together(self, dataset: str) -> int:
        """How many seeds train as one; of the largest data set fewer, so that two cores share."""
        return 10 if dataset == "power" else 20

    @abstractmethod
    def make(self, split: Split) -> nn.Module:
        """A new model for the data of one seed."""

    def new(self, splits: Sequence[Split]) -> list[nn.Module]:
        """A new model for each seed."""
        models = []
        for split in splits:
            torch.manual_seed(split.seed)
            models.append(self.make(split))
        return models

    def optimise(
        self,
        models: list[nn.Module],
        splits: Sequence[Split],
        train: list[Pair],
        checkpoint: Path | None,
        **changes: Any,
    ) -> list[ll.History]:
        """Train each model on its own data with the knobs above; `changes` are of `fit_many`."""
        options = {name: getattr(self, name) for name in OPTIONS} | changes
        return ll.fit_many(
            models,
            train,
            seeds=[split.seed for split in splits],
            progress=False,
            checkpoint=checkpoint,
            checkpoint_every=max(1, self.epochs // 20),
            **options,
        )

    def fit(
        self, models: list[nn.Module], splits: Sequence[Split], checkpoint: Path | None
    ) -> list[dict[str, Any]]:
        """Choose the number of epochs, train the models; what to note about each."""
        histories = self.optimise(
            models,
            splits,
            [split.train for split in splits],
            checkpoint,
            validation=[split.validation for split in splits],
            validate_every=self.validate_every,
            patience=self.patience,
            retrain=True,
        )
        return [{"epochs": h.best_epoch, "validation_nll": h.best_nll} for h in histories]

    def finish(self, model: nn.Module, split: Split) -> nn.Module:
        """What predicts, given the trained model; by default that model."""
        return model

    def train(
        self, splits: Sequence[Split], checkpoint: Path | None = None
    ) -> list[tuple[nn.Module, dict[str, Any]]]:
        """For each seed a model that predicts, and what to note about its training."""
        models = self.new(splits)
        notes = self.fit(models, splits, checkpoint)
        finished = [self.finish(m, split).eval() for m, split in zip(models, splits, strict=True)]
        return list(zip(finished, notes, strict=True))
