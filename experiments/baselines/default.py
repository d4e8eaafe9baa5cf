"""Ours by default: a network with a head, and nothing chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import lastlayer as ll

from ..harness.task import Supervised
from .fitted import Fitted


@dataclass(frozen=True, kw_only=True)
class DefaultHead(Fitted):
    """A network with the head of its likelihood, whose options are its defaults."""

    label: ClassVar[str] = "`fit`"

    def make(self, task: Supervised) -> ll.Network:
        """The network with the head."""
        head = task.likelihood.head(task.num_features, num_data=task.num_data)
        return ll.Network(task.backbone(), head)
