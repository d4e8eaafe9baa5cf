"""What methods that train by `lastlayer.fit` share: settings, and the choice of epochs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

import lastlayer as ll

from ..harness.method import Method, Solved
from ..harness.task import Supervised

# Settings that are options of `fit`.
OPTIONS = (
    "epochs",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "clip",
    "schedule",
    "initialize",
)


@dataclass(frozen=True, kw_only=True)
class Fitted(Method):
    """A model that is trained by gradients; by default with the settings of the paper's VBLL.

    Several seeds train as one batched model. The number of epochs is chosen by the NLL of
    validation data, and the model trained anew for as many on training and validation data; a
    task without validation data trains for all epochs.
    """

    # For estimates of time: of a step, and how much of it all seeds share, in units of one seed's.
    relative_cost: ClassVar[float] = 1.0
    common_cost: ClassVar[float] = 10.0

    epochs: int  # the maximum
    batch_size: int = 32  # this and all below: paper, appendix D
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    clip: float = 1.0
    schedule: str = "constant"
    validate_every: int = 10
    patience: int | None = None  # the paper names none
    scale_targets: bool = False  # targets of regression are centred only
    initialize: bool = True  # heads begin at the scale of the targets; the paper does not say

    @abstractmethod
    def make(self, task: Supervised) -> nn.Module:
        """A new model for a task, with the two calls of this package."""

    def cost(self, num_data: int, num_seeds: int) -> float:
        """Proportional to the number of steps."""
        steps = self.epochs * math.ceil(num_data / self.batch_size)
        return self.relative_cost * steps * (self.common_cost + num_seeds)

    def new(self, tasks: Sequence[Supervised]) -> list[nn.Module]:
        """A new model for each task."""
        models = []
        for task in tasks:
            torch.manual_seed(task.seed)
            models.append(self.make(task))
        return models

    def optimise(
        self,
        models: list[nn.Module],
        train: list[Any],
        seeds: Sequence[int],
        checkpoint: Path | None,
        validation: list[Any] | None = None,
        **changes: Any,
    ) -> list[ll.History]:
        """Train each model on its own data with the settings above.

        Args:
            models: trained in place; several train as one batched model.
            train: for each model.
            seeds: for each model.
            checkpoint: a folder to go on from after an interruption.
            validation: for each model.
            changes: options of `fit` that differ from the settings.
        """
        options = {
            **{name: getattr(self, name) for name in OPTIONS},
            "progress": False,
            "checkpoint": checkpoint,
            "checkpoint_every": max(1, self.epochs // 20),
        }
        options |= changes
        if len(models) > 1:
            return ll.fit_many(models, train, validation, seeds=seeds, **options)
        validated = None if validation is None else validation[0]
        return [ll.fit(models[0], train[0], validated, seed=seeds[0], **options)]

    def fit(
        self, models: list[nn.Module], tasks: Sequence[Supervised], checkpoint: Path | None
    ) -> list[dict[str, Any]]:
        """Choose the number of epochs, train the models; what to note about each."""
        train, seeds = [task.train for task in tasks], [task.seed for task in tasks]
        if all(task.validation is None for task in tasks):
            histories = self.optimise(models, train, seeds, checkpoint)
            return [{"epochs": len(h), "loss": h[-1]["loss"]} for h in histories]
        histories = self.optimise(
            models,
            train,
            seeds,
            checkpoint,
            [task.validation for task in tasks],
            validate_every=self.validate_every,
            patience=self.patience,
            retrain=True,
        )
        return [{"epochs": h.best_epoch, "validation_nll": h.best_nll} for h in histories]

    def finish(self, model: nn.Module, task: Supervised) -> nn.Module:
        """What predicts, given the trained model; by default that model."""
        return model

    def train(self, tasks: Sequence[Supervised], checkpoint: Path | None = None) -> Solved:
        """For each task a model that predicts, and what to note about its training."""
        models = self.new(tasks)
        notes = self.fit(models, tasks, checkpoint)
        finished = [self.finish(m, task).eval() for m, task in zip(models, tasks, strict=True)]
        return list(zip(finished, notes, strict=True))
