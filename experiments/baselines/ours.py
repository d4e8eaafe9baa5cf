"""Ours: VBLL along a cosine of the best length, calibrated on out-of-fold predictions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.calibration import Calibrated

from ..harness.method import Solved
from ..harness.task import Supervised
from .fitted import OPTIONS
from .vbll import LastLayer

OPTIMIZERS = {"soap": ll.SOAP, "adamw": torch.optim.AdamW}


@dataclass(frozen=True, kw_only=True)
class Ours(LastLayer):
    """VBLL along a cosine of the best length, calibrated on out-of-fold predictions.

    Stopping before the noise becomes too small for new data, as VBLL does, also stops before the
    mean is as good as it could be. Here training goes to the end of a cosine, and out-of-fold
    predictions say how large errors really are: cross-validation on training and validation data,
    because a single validation set is too small to choose by. See `lastlayer.crossfit`.
    """

    label = "Ours"
    relative_cost = 4.0
    turns: ClassVar[int | None] = None  # folds that are held out: all

    num_folds: int = 5
    optimizer: str = "soap"
    learning_rate: float = 3e-3
    weight_decay: Any = (30.0, 300.0)  # over the number of examples; the better one
    schedule: str = "cosine"
    scale_targets: bool = True
    bias: bool = True
    noise_scale: float = 0.01  # of targets with unit variance

    def train(self, tasks: Sequence[Supervised], checkpoint: Path | None = None) -> Solved:
        """Double the length while that helps, then train anew on all but the test data."""
        options = {name: getattr(self, name) for name in OPTIONS if name != "weight_decay"}
        found = ll.crossfit_many(
            [functools.partial(self._model, task) for task in tasks],
            [task.development for task in tasks],
            seeds=[task.seed for task in tasks],
            num_folds=self.num_folds,
            turns=self.turns,
            weight_decays=self.weight_decay,
            checkpoint=checkpoint,
            checkpoint_every=max(1, self.epochs // 20),
            progress=False,
            **options | {"optimizer": OPTIMIZERS[self.optimizer]},
        )
        return [
            (Calibrated(one.model, one.scaling).eval(), self.notes(one, task))
            for one, task in zip(found, tasks, strict=True)
        ]

    def _model(self, task: Supervised, train: tuple[Tensor, ...]) -> nn.Module:
        """A new model for some of the data of a task."""
        return self.make(replace(task, train=train))

    @torch.no_grad()
    def notes(self, found: ll.CrossFit, task: Supervised) -> dict[str, Any]:
        """What to note about training."""
        predictive, data = found.held_out()
        return {
            "epochs": found.epochs,
            "weight_decay": found.weight_decay,
            "validation_nll": held_out_nll(found.scaling(predictive), data[1]),
            "tried": [
                {name.replace("nll", "validation_nll"): value for name, value in one.items()}
                for one in found.tried
            ],
        }


def held_out_nll(predictive: Any, target: Tensor) -> float:
    """The mean NLL of predictions, in double precision."""
    return -predictive.log_prob(target).double().mean().item()
