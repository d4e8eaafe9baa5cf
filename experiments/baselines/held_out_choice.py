"""Ours for images: of two networks after `posttrain`, the one that held-out data prefer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import lastlayer as ll

from ..harness.method import Solved
from .calibrated_generative import CalibratedGenerative
from .calibrated_posttrained import CalibratedPosttrained

BATCH_SIZE = 500  # of predictions


@dataclass(frozen=True, kw_only=True)
class HeldOutChoice(CalibratedGenerative):
    """DNN + `posttrain` or G-VBLL + `posttrain`: whichever has the lower NLL on held-out data."""

    label = "Ours"
    candidates: ClassVar = (CalibratedPosttrained, CalibratedGenerative)

    def train(self, tasks: Sequence[Any], checkpoint: Path | None = None) -> Solved:
        """Train the networks that are not kept, and take the better one for each task."""
        return [self._best(task, checkpoint) for task in tasks]

    def _best(self, task: Any, checkpoint: Path | None) -> tuple[Any, dict[str, Any]]:
        solved, nll = {}, {}
        for kind in self.candidates:
            names = [field.name for field in dataclasses.fields(kind)]
            method = kind(**{name: getattr(self, name) for name in names})
            folder = checkpoint and checkpoint / kind.__name__
            solved[kind.label] = method.train([task], folder)[0]
            model = solved[kind.label][0]
            nll[kind.label] = ll.metrics.evaluate(
                model, task.held_out, batch_size=BATCH_SIZE, progress=False
            )["nll"]
        best = min(nll, key=lambda name: nll[name])
        model, notes = solved[best]
        return model, notes | {"network": best, "held_out_nll": nll}
