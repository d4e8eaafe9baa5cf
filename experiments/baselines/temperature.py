"""Temperature scaling: a network whose logits are divided by a number, by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import lastlayer as ll
from lastlayer.calibration import Calibrated, TemperatureScaling

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
        orders = [
            torch.randperm(task.num_data, generator=torch.Generator().manual_seed(task.seed))
            for task in tasks
        ]
        held_out: list[list[Any]] = [[] for _ in tasks]
        for fold in range(self.num_folds):
            parts = [order.tensor_split(self.num_folds) for order in orders]
            fewer = [
                replace(task, train=_rows(task.train, torch.cat([*part[:fold], *part[fold + 1 :]])))
                for task, part in zip(tasks, parts, strict=True)
            ]
            models = super().train(fewer, checkpoint and checkpoint / str(fold))
            for at, (model, _) in enumerate(models):
                inputs, target = _rows(tasks[at].train, parts[at][fold])
                with torch.no_grad():
                    held_out[at].append((model(inputs).logits, target))
        found: Solved = []
        for (model, notes), pairs in zip(trained, held_out, strict=True):
            logits, target = (torch.cat(parts) for parts in zip(*pairs, strict=True))
            data = (logits, target)
            scaling = TemperatureScaling().fit(ll.SoftmaxPredictive, data, progress=False)
            notes = notes | {"temperature": scaling.temperature.item()}
            found.append((Calibrated(model, scaling).eval(), notes))
        return found


def _rows(data: Any, rows: torch.Tensor) -> Any:
    return tuple(part[rows] for part in data)
