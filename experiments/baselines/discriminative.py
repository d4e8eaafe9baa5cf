"""D-VBLL: a variational discriminative last layer, trained with the network (theorem 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lastlayer as ll

from ..harness.task import Supervised
from .vbll import LastLayer


@dataclass(frozen=True, kw_only=True)
class DiscriminativeVBLL(LastLayer):
    """A Bayesian softmax layer with the paper's bound, prior and label noise."""

    label = "D-VBLL"

    covariance: str = "dense"
    bound: str = "jensen"
    noise: str = "diagonal"

    def head(self, task: Supervised, **options: Any) -> ll.Head:
        """The last layer, all of whose options are named."""
        named = {name: getattr(self, name) for name in ("covariance", "bound", "noise")}
        return super().head(task, **named | options)
