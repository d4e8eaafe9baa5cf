"""A network with a linear last layer, trained by maximum likelihood: no weight is uncertain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..harness.task import Supervised
from .fitted import Fitted
from .plain import PlainNetwork


@dataclass(frozen=True, kw_only=True)
class Deterministic(Fitted):
    """A network with a linear last layer, trained by maximum likelihood."""

    label: ClassVar[str] = "network"

    def make(self, task: Supervised) -> PlainNetwork:
        """The network with a linear last layer."""
        return PlainNetwork.of(task)
