"""VBLL BBB: a variational last layer on variational features (paper, appendix B)."""

from __future__ import annotations

from dataclasses import dataclass

import lastlayer as ll

from ..backbones import mlp
from ..datasets.uci import Split
from .bbb import Variational
from .vbll import LastLayer


@dataclass(frozen=True, kw_only=True)
class VBLLBBB(Variational, LastLayer):
    """VBLL's head; the last layer is integrated out, features are drawn."""

    label = "VBLL BBB"

    feature_kl_weight: float = 1.0  # the whole divergence: paper, section 5.2

    def make(self, split: Split) -> ll.Network:
        """VBLL's network with variational features."""
        return ll.Network(
            ll.make_variational(mlp.features(split.num_inputs)),
            self.head(split),
            num_prediction_samples=self.num_prediction_samples,
            feature_kl_weight=self.feature_kl_weight,
        )
