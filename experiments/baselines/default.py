"""Ours by default: a network with a head, and nothing chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

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

    def remarks(self, model: nn.Module) -> dict[str, Any]:
        """Which head it was: defaults may be others in another version."""
        return head_remark(model)


def head_remark(model: nn.Module) -> dict[str, Any]:
    """A note of a network's head."""
    assert isinstance(model, ll.Network)
    return {"head": model.head.extra_repr()}
