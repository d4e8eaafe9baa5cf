"""Networks with a score of their own for out-of-distribution inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.network import sample_features
from lastlayer.variational import variational_layers

Score = Callable[[Tensor, Any], Tensor]


class ScoredNetwork(nn.Module):
    """A network whose score is a function of features and predictive.

    Variational features are drawn as often as for predictions, and the score is that of the mean
    of exp(−score) over draws: the mean of a density, if the score is minus its logarithm.

    Args:
        network: backbone and head.
        score: from features (*batch, N) and the head's predictive to scores (*batch,).
        scaling: of the predictive, if it is calibrated.
    """

    def __init__(self, network: ll.Network, score: Score, scaling: nn.Module | None = None) -> None:
        super().__init__()
        self.network, self.score = network, score
        self.scaling = nn.Identity() if scaling is None else scaling

    def forward(self, inputs: Any) -> Any:
        """The predictive."""
        return self.scaling(self.network(inputs))

    def scored(self, inputs: Any) -> tuple[Any, Tensor]:
        """The predictive and the score; higher is further out, (*batch,)."""
        network = self.network
        if not variational_layers(network.backbone):
            features = network.backbone(inputs)
            predictive = network.head(features)
            return self.scaling(predictive), self.score(features, predictive)
        features = sample_features(network.backbone, inputs, network.num_prediction_samples)
        features = features.movedim(0, -2)  # (*batch, S, N)
        predictive = network.head(features)
        draws = self.score(features, predictive)  # (*batch, S)
        score = torch.tensor(float(draws.shape[-1])).log() - (-draws).logsumexp(-1)
        return self.scaling(ll.predictive.mix(predictive)), score


class NormalizedDensity:
    """The normalised density of features under a generative head, as it was learned (appendix B).

    log p₀(φ) − log Σ_y p(φ | y) p(y), with p₀ = N(0, sI + Σ) the prior density of the features of
    a class.

    Args:
        head: with diagonal noise.
    """

    def __init__(self, head: ll.GenerativeClassification) -> None:
        self.head = head

    def __call__(self, features: Tensor, predictive: Any) -> Tensor:
        """The score, (*batch,)."""
        variance = self.head.noise.variance() + self.head.density_prior.fixed_variance
        prior = torch.distributions.Normal(torch.zeros_like(variance), variance.sqrt())
        return prior.log_prob(features).sum(-1) - predictive.log_density()
