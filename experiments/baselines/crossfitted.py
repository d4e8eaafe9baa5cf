"""Cross-fitting by default: a head, with the length of training and a temperature out of fold."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import lastlayer as ll
from lastlayer.calibration import Calibrated

from ..harness.method import Solved
from ..harness.task import Supervised
from .default import DefaultHead, head_remark
from .fitted import OPTIONS

SEARCHED = ("epochs", "weight_decay", "schedule")  # by or with `crossfit`


@dataclass(frozen=True, kw_only=True)
class Crossfitted(DefaultHead):
    """The default head by `lastlayer.crossfit`, with AdamW and the learning rate of a network.

    Lengths from a quarter to four times the number of epochs are tried.
    """

    label = "`crossfit`"
    relative_cost = 20.0

    factor: int = 4

    def train(self, tasks: Sequence[Supervised], checkpoint: Path | None = None) -> Solved:
        """Find the length on out-of-fold data, then train anew on all data."""
        options = {name: getattr(self, name) for name in OPTIONS if name not in SEARCHED}
        found = ll.crossfit_many(
            [functools.partial(self._model, task) for task in tasks],
            [task.train for task in tasks],
            example_groups=[task.groups for task in tasks],
            seeds=[task.seed for task in tasks],
            epochs=self.factor * self.epochs,
            shortest=max(1, self.epochs // self.factor),
            optimizer=None,
            checkpoint=checkpoint,
            checkpoint_every=max(1, self.factor * self.epochs // 20),
            progress=False,
            **options,
        )
        return [(Calibrated(one.model, one.scaling).eval(), notes(one)) for one in found]

    def _model(self, task: Supervised, train: tuple[Tensor, ...]) -> nn.Module:
        """A new model for some of the data of a task."""
        return self.make(replace(task, train=train))


def notes(found: ll.CrossFit) -> dict[str, Any]:
    """The head, and what the out-of-fold predictions chose."""
    scaling: Any = found.scaling
    return head_remark(found.model) | {
        "epochs": found.epochs,
        "weight_decay": found.weight_decay,
        "validation_nll": min(one["nll"] for one in found.tried),
        "temperature": scaling.temperature.item(),
    }
