"""The network of the UCI experiments: two hidden layers of 50 leaky ReLU units (appendix D)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import lastlayer as ll

WIDTH, DEPTH = 50, 2


def features(num_inputs: int, width: int = WIDTH, depth: int = DEPTH) -> nn.Sequential:
    """From inputs (*batch, num_inputs) to features (*batch, width)."""
    layers: list[nn.Module] = []
    for size in (num_inputs, *[width] * (depth - 1)):
        layers += [nn.Linear(size, width), nn.LeakyReLU()]
    return nn.Sequential(*layers)


def regressor(num_inputs: int, width: int = WIDTH, num_outputs: int = 1) -> nn.Sequential:
    """The same with a linear last layer."""
    return features(num_inputs, width).append(nn.Linear(width, num_outputs))


class GaussianNetwork(nn.Module):
    """A network whose output is the mean of Gaussian targets, with one learned noise variance.

    Args:
        network: from inputs to means, (*batch, 1).
    """

    def __init__(self, network: nn.Sequential) -> None:
        super().__init__()
        self.network = network
        self.log_stddev = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Tensor | ll.Predictive:
        """The predictive, or with a target the mean negative log-likelihood."""
        predictive = self.predictive(self.network(inputs))
        return predictive if target is None else -predictive.log_prob(target).mean()

    def predictive(self, mean: Tensor) -> ll.GaussianPredictive:
        """Gaussians about given means, (*batch, 1)."""
        variance = (2 * self.log_stddev).exp().expand_as(mean)
        return ll.GaussianPredictive(mean, torch.zeros_like(mean), variance)

    def mixture(self, inputs: Tensor, num_samples: int) -> ll.Predictive:
        """The equal mixture over draws of a network that is random."""
        repeated = torch.stack([inputs] * num_samples, -2)  # (*batch, S, N)
        return ll.predictive.mix(self.predictive(self.network(repeated)))
