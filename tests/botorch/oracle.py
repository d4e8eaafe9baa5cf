"""Brute force: a last layer as the Gaussian process that it is, by dense matrices of all points."""

from typing import Any

import torch
from torch import Tensor, nn

from lastlayer.botorch import LastLayerModel
from lastlayer.optimisation.data import Data
from lastlayer.optimisation.training import fit_last_layer

NUM_INPUTS, NUM_FEATURES = 2, 6
NOISE = torch.tensor([0.04, 0.5, 0.1], dtype=torch.float64)  # of standardised outcomes


def observations(
    num_outputs: int, generator: torch.Generator, count: int = 9
) -> tuple[Tensor, Tensor]:
    """Inputs from a box that is not the unit cube, and outcomes far from standardised."""
    inputs = 4 * torch.rand(count, NUM_INPUTS, generator=generator) - 3
    outcomes = torch.stack([inputs.sin().sum(-1), inputs.prod(-1), inputs.square().sum(-1)], -1)
    noise = 0.3 * torch.randn(count, 3, generator=generator)
    return inputs, (50 + torch.tensor([1.0, 7.0, 0.1]) * (outcomes + noise))[:, :num_outputs]


class Oracle:
    """A model with fewer features than some tests have points, and what it must say.

    Attributes:
        model: the model.
        noise: variances of standardised outcomes, (m,).
    """

    def __init__(self, inputs: Tensor, outcomes: Tensor, **options: Any) -> None:
        torch.manual_seed(1)
        backbone = nn.Sequential(nn.Linear(NUM_INPUTS, NUM_FEATURES), nn.Tanh())
        options = {"backbone": backbone, "num_features": NUM_FEATURES, **options}
        self.model = LastLayerModel(inputs, outcomes, **options)
        self.inputs, self.outcomes = inputs, outcomes
        self.low, self.width = inputs.amin(0), inputs.amax(0) - inputs.amin(0)
        self.location, self.scale = outcomes.mean(0), outcomes.std(0)
        self.noise = NOISE[: outcomes.shape[-1]]
        self.model.network.head.noise.assign(self.noise.diag_embed())
        target = (outcomes - self.location) / self.scale
        fit_last_layer(self.model.network, Data((inputs - self.low) / self.width, target))

    def kernel(self, left: Tensor, right: Tensor) -> Tensor:
        """Prior covariance of standardised values at (p, d) and (q, d), (p, q)."""
        one, two = (self.model.network.backbone((x - self.low) / self.width) for x in (left, right))
        return one @ two.mT + 1  # weights of unit variance, and a bias

    def values(
        self,
        points: Tensor,
        inputs: Tensor | None = None,
        outcomes: Tensor | None = None,
        variances: Tensor | None = None,
        added: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Mean (q, m) and covariances (m, q, q) at points (q, d).

        Args:
            points: where.
            inputs: of observations besides the first, (n, d).
            outcomes: of those, (n, m).
            variances: of the noise of those, (n, m), of standardised outcomes.
            added: variances of noise to add to the values, (q, m), of standardised outcomes.
        """
        inputs = self.inputs if inputs is None else torch.cat([self.inputs, inputs])
        outcomes = self.outcomes if outcomes is None else torch.cat([self.outcomes, outcomes])
        noise = self.noise.expand_as(outcomes).clone()
        if variances is not None:
            noise[-len(variances) :] = variances
        target = (outcomes - self.location) / self.scale
        cross, means, covariances = self.kernel(points, inputs), [], []
        for k in range(outcomes.shape[-1]):
            gram = self.kernel(inputs, inputs) + noise[:, k].diag()
            gain = cross @ torch.linalg.inv(gram)
            covariance = self.kernel(points, points) - gain @ cross.mT
            if added is not None:
                covariance = covariance + added[:, k].diag()
            means.append(self.location[k] + self.scale[k] * gain @ target[:, k])
            covariances.append(self.scale[k] ** 2 * covariance)
        return torch.stack(means, -1), torch.stack(covariances)


def covariances(posterior: Any) -> Tensor:
    """Covariances between points of a posterior of BoTorch, of each output, (*batch, m, q, q)."""
    dense = posterior.distribution.covariance_matrix
    num_points, num_outputs = posterior.mean.shape[-2:]
    if num_outputs == 1:
        return dense.unsqueeze(-3)
    blocks = dense.unflatten(-1, (num_outputs, num_points)).unflatten(-3, (num_outputs, num_points))
    return blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
