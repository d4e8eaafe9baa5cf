"""VBLL BBB: a variational last layer on variational features (paper, appendix B)."""

from __future__ import annotations

from dataclasses import dataclass

import lastlayer as ll

from ..harness.task import Supervised
from .bbb import Variational
from .vbll import LastLayer


@dataclass(frozen=True, kw_only=True)
class VBLLBBB(Variational, LastLayer):
    """A variational last layer, integrated out, on variational features, which are drawn."""

    label = "VBLL BBB"

    feature_kl_weight: float = 1.0  # the whole divergence: paper, section 5.2

    def make(self, task: Supervised) -> ll.Network:
        """The network with variational features."""
        return ll.Network(
            ll.make_variational(task.backbone()),
            self.head(task),
            num_prediction_samples=self.num_prediction_samples,
            feature_kl_weight=self.feature_kl_weight,
        )
