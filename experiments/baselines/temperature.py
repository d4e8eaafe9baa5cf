"""Temperature scaling: a network whose logits are divided by a number, by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import lastlayer as ll
from lastlayer.calibration import Calibrated, TemperatureScaling
from lastlayer.training.folds import Fold

from ..harness.method import Solved
from ..harness.task import Supervised
from .deterministic import Deterministic


@dataclass(frozen=True, kw_only=True)
class Temperature(Deterministic):
    """A network trained on all data, at the temperature that out-of-fold predictions want.

    A part that is held out once, as is usual, is too small where there are few examples: if all
    of it is predicted right, the best temperature is zero.
    """

    label = "temperature scaling"

    num_folds: int = 5

    def train(self, tasks: Sequence[Supervised], checkpoint: Path | None = None) -> Solved:
        """Train on all data, then without each fold in turn."""
        trained = super().train(tasks, checkpoint and checkpoint / "all")
        count = self.num_folds
        folds = [Fold.of(task.train, count, count, task.seed, task.groups) for task in tasks]
        held_out: list[list[Any]] = [[] for _ in tasks]
        for turn in range(count):
            fewer = [
                replace(task, train=own[turn].train) for task, own in zip(tasks, folds, strict=True)
            ]
            models = super().train(fewer, checkpoint and checkpoint / str(turn))
            for pairs, own, (model, _) in zip(held_out, folds, models, strict=True):
                inputs, target = own[turn].held_out
                with torch.no_grad():
                    pairs.append((model(inputs).logits, target))
        found: Solved = []
        for (model, notes), pairs in zip(trained, held_out, strict=True):
            logits, target = (torch.cat(parts) for parts in zip(*pairs, strict=True))
            data = (logits, target)
            scaling = TemperatureScaling(prior_stddev=math.inf)  # as published
            scaling.fit(ll.SoftmaxPredictive, data, progress=False)
            notes = notes | {"temperature": scaling.temperature.item()}
            found.append((Calibrated(model, scaling).eval(), notes))
        return found
