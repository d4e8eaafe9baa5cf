"""What methods that train by `lastlayer.fit` share: settings, and the choice of epochs."""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

import lastlayer as ll

from ..harness import networks
from ..harness.jobs import is_first_process
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
    "precision",
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
    # The method whose networks this one is made of, if not its own.
    trained_as: ClassVar[type[Fitted] | None] = None

    epochs: int  # the maximum
    batch_size: int = 32  # this and all below: paper, appendix D
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    clip: float | None = 1.0
    schedule: str = "constant"
    optimizer: str = "adamw"  # or "sgd" or "nesterov", with `momentum`
    momentum: float = 0.0
    precision: str = "full"
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
        if self.optimizer != "adamw":
            nesterov = {"sgd": False, "nesterov": True}[self.optimizer]
            options["optimizer"] = functools.partial(
                torch.optim.SGD, momentum=self.momentum, nesterov=nesterov
            )
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
            options = tasks[0].fit_options
            histories = self.optimise(models, train, seeds, checkpoint, **options)
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

    def remarks(self, model: nn.Module) -> dict[str, Any]:
        """What to note about a finished model, besides its training."""
        return {}

    def train(self, tasks: Sequence[Supervised], checkpoint: Path | None = None) -> Solved:
        """For each task a model that predicts, and what to note about its training.

        Networks that are kept are not trained again.
        """
        models = self.new(tasks)
        paths = [self.kept(task) for task in tasks]
        if all(path is not None and path.exists() for path in paths):
            pairs = zip(paths, models, strict=True)
            notes = [networks.load(path, model) for path, model in pairs if path is not None]
        else:
            notes = self.fit(models, tasks, checkpoint)
            for path, model, note in zip(paths, models, notes, strict=True):
                if path is not None and is_first_process():
                    networks.save(path, model, note)
        solved: Solved = []
        for model, task, note in zip(models, tasks, notes, strict=True):
            finished = self.finish(model, task).eval()
            solved.append((finished, note | self.remarks(finished)))
        return solved

    def kept(self, task: Supervised) -> Path | None:
        """Where the trained network of a task is kept, if it is."""
        if task.networks is None:
            return None
        trainer = self.trained_as or type(self)
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(trainer)}
        about = {"trainer": trainer.__name__, **task.identity, "seed": task.seed, **settings}
        name = "-".join(map(str, [*task.identity.values(), trainer.__name__.lower(), task.seed]))
        return networks.place(task.networks, name, about)
