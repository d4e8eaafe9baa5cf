"""Ours by default: a network with a head, and nothing chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import lastlayer as ll

from ..harness.method import Solved
from ..harness.task import Supervised
from .fitted import Fitted


@dataclass(frozen=True, kw_only=True)
class DefaultHead(Fitted):
    """A network with the head of its likelihood, whose options are its defaults."""

    label: ClassVar[str] = "`fit`"

    def train(self, tasks: Sequence[Supervised], checkpoint: Path | None = None) -> Solved:
        """Train, and note which head it was."""
        return described(super().train(tasks, checkpoint))

    def make(self, task: Supervised) -> ll.Network:
        """The network with the head."""
        head = task.likelihood.head(task.num_features, num_data=task.num_data)
        return ll.Network(task.backbone(), head)


def described(solved: Solved) -> Solved:
    """Models with a note of their heads, whose defaults may be others in another version."""
    return [(model, notes | {"head": model.head.extra_repr()}) for model, notes in solved]
