"""G-VBLL: a variational generative last layer for classes, trained with the network (theorem 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lastlayer as ll

from ..harness.task import Supervised
from .vbll import LastLayer


@dataclass(frozen=True, kw_only=True)
class GenerativeVBLL(LastLayer):
    """Gaussian densities of the features of each class; their means have no bias."""

    label = "G-VBLL"

    covariance: str = "diagonal"
    noise: str = "diagonal"
    concentration: float = 1.0

    def head(self, task: Supervised, **options: Any) -> ll.Head:
        """The last layer, all of whose options are named."""
        num_classes = task.likelihood.num_targets
        named = {name: getattr(self, name) for name in ("covariance", "noise", "concentration")}
        options = {"prior": self.prior, "num_data": task.num_data, **named, **options}
        return ll.GenerativeClassification(task.num_features, num_classes, **options)
