"""BBB with a single variational layer, the last or the one before the head (paper, appendix D)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

import lastlayer as ll

from ..harness.task import Supervised
from .bbb import BayesianNetwork
from .discriminative import DiscriminativeVBLL
from .fitted import Fitted
from .generative import GenerativeVBLL
from .plain import PlainNetwork
from .scored import NormalizedDensity, ScoredNetwork


@dataclass(frozen=True, kw_only=True)
class SingleLayer(Fitted):
    """What methods with one variational layer have in common."""

    single_pass: ClassVar[bool] = False

    layer_prior_variance: float = 0.01  # this and all below: paper, appendix D
    feature_kl_weight: float = 0.5
    num_prediction_samples: int = 10

    def layer(self, num_inputs: int, num_outputs: int) -> ll.VariationalLinear:
        """The variational layer."""
        return ll.VariationalLinear(
            num_inputs, num_outputs, prior_variance=self.layer_prior_variance
        )

    def variational_backbone(self, task: Supervised) -> nn.Sequential:
        """The backbone and a variational layer as wide as its features."""
        return nn.Sequential(task.backbone(), self.layer(task.num_features, task.num_features))


@dataclass(frozen=True, kw_only=True)
class LastLayerBBB(SingleLayer):
    """A network whose last layer is variational, and drawn."""

    label = "BBB"

    feature_kl_weight: float = 50.0  # paper, appendix D

    def make(self, task: Supervised) -> PlainNetwork:
        """The network with a variational last layer."""
        output = task.likelihood.output()
        layer = self.layer(task.num_features, output.num_outputs)
        return FeaturesOnce(
            nn.Sequential(task.backbone(), layer),
            output,
            num_prediction_samples=self.num_prediction_samples,
            num_data=task.num_data / self.feature_kl_weight,
        )


class FeaturesOnce(BayesianNetwork):
    """A network of which only the last layer is drawn; the features are computed once."""

    def passes(self, inputs: Tensor) -> Tensor:
        """Outputs of all draws, (B, S, num_outputs)."""
        assert isinstance(self.network, nn.Sequential)
        features, layer = self.network
        repeated = features(inputs).unsqueeze(1).expand(-1, self.num_prediction_samples, -1)
        found: Tensor = layer(repeated)
        return found


@dataclass(frozen=True, kw_only=True)
class DiscriminativeBBB(SingleLayer, DiscriminativeVBLL):
    """D-VBLL, integrated out, after a variational layer, which is drawn."""

    label = "D-VBLL BBB"

    def make(self, task: Supervised) -> ll.Network:
        """The network with a variational layer and the head."""
        return _network(self, task, self.head(task))


@dataclass(frozen=True, kw_only=True)
class GenerativeBBB(SingleLayer, GenerativeVBLL):
    """G-VBLL, integrated out, after a variational layer, which is drawn."""

    label = "G-VBLL BBB"

    def make(self, task: Supervised) -> ll.Network:
        """The network with a variational layer and the head."""
        return _network(self, task, self.head(task))

    def finish(self, model: nn.Module, task: Supervised) -> nn.Module:
        """The network with the normalised density as its score."""
        assert isinstance(model, ll.Network)
        assert isinstance(model.head, ll.GenerativeClassification)
        return ScoredNetwork(model, NormalizedDensity(model.head))


def _network(method: SingleLayer, task: Supervised, head: Any) -> ll.Network:
    return ll.Network(
        method.variational_backbone(task),
        head,
        num_prediction_samples=method.num_prediction_samples,
        feature_kl_weight=method.feature_kl_weight,
    )
