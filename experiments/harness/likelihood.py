"""Likelihoods: how targets follow from the outputs of a network, and the heads that belong to them.

A method asks the likelihood of its task for what depends on the kind of target, and so works for
regression and for classification.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.functional import at_least_float32

Pair = tuple[Tensor, Tensor]


class Output(nn.Module, ABC):
    """The map from the outputs of a network, (*batch, num_outputs), to a predictive."""

    num_outputs: int

    @abstractmethod
    def forward(self, outputs: Tensor) -> ll.Predictive:
        """The predictive, of batch shape (*batch,)."""


class GaussianOutput(Output):
    """Outputs are means; each target has one noise variance, which is learned."""

    def __init__(self, num_targets: int) -> None:
        super().__init__()
        self.num_outputs = num_targets
        self.log_stddev = nn.Parameter(torch.zeros(num_targets))

    def forward(self, outputs: Tensor) -> ll.GaussianPredictive:
        """Gaussians about the outputs."""
        variance = (2 * self.log_stddev).exp().expand_as(outputs)
        return ll.GaussianPredictive(outputs, torch.zeros_like(outputs), variance)


class HeteroscedasticOutput(Output):
    """Outputs are means, and as many numbers that give each input a noise variance of its own."""

    def __init__(self, num_targets: int, min_variance: float) -> None:
        super().__init__()
        self.num_outputs, self.min_variance = 2 * num_targets, min_variance

    def forward(self, outputs: Tensor) -> ll.GaussianPredictive:
        """Gaussians whose variances are a softplus of the second half of the outputs."""
        mean, raw = outputs.chunk(2, -1)
        variance = F.softplus(raw) + self.min_variance
        return ll.GaussianPredictive(mean, torch.zeros_like(mean), variance)


class SoftmaxOutput(Output):
    """Outputs are logits."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_outputs = num_classes

    def forward(self, outputs: Tensor) -> ll.Predictive:
        """The softmax of the outputs, in single precision if they are in half."""
        return ll.SoftmaxPredictive(at_least_float32(outputs))


@dataclass(frozen=True)
class Likelihood(ABC):
    """A kind of target, and how many there are: outputs of regression, or classes."""

    num_targets: int

    @abstractmethod
    def output(self, min_variance: float | None = None) -> Output:
        """What makes predictives of a network's outputs.

        Args:
            min_variance: if given, regression has a noise variance for each input, at least this;
                otherwise one for all. Classes have none.
        """

    @abstractmethod
    def head(self, num_features: int, **options: Any) -> ll.Head:
        """A new Bayesian last layer; options are those of the head."""

    @abstractmethod
    def posttrained(self, network: nn.Sequential, output: Output, data: Pair) -> ll.Network:
        """The last layer of a trained network made Bayesian, on features that stay as they are.

        The prior variance is the mean square of the trained weights.

        Args:
            network: features, and then a linear layer.
            output: what the network was trained with.
            data: all that it was trained on.
        """


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Regression: targets (*batch, num_targets), Gaussian about a function of the inputs."""

    def output(self, min_variance: float | None = None) -> Output:
        """One noise variance, or one for each input."""
        if min_variance is None:
            return GaussianOutput(self.num_targets)
        return HeteroscedasticOutput(self.num_targets, min_variance)

    def head(
        self, num_features: int, *, initial_scale: float | None = None, **options: Any
    ) -> ll.Regression:
        """A regression head; with `initial_scale` its initial weights are of that size."""
        if initial_scale is None:
            return ll.Regression(num_features, self.num_targets, **options)
        return ScaledRegression(
            num_features, self.num_targets, initial_scale=initial_scale, **options
        )

    @torch.no_grad()
    def posttrained(self, network: nn.Sequential, output: Output, data: Pair) -> ll.Network:
        """The closed form, at the noise that was learned with the features.

        Noise that is estimated anew, from features fitted to the same data, is far too small.
        """
        features, layer = network
        assert isinstance(layer, nn.Linear)
        assert isinstance(output, GaussianOutput)
        inputs, target = data
        prior = ll.Prior(variance=float(layer.weight.square().mean()))
        head = self.head(layer.in_features, num_data=len(inputs), prior=prior, bias=True)
        head.noise.assign((2 * output.log_stddev).exp().diag())
        head.fit_exact(features(inputs), target)
        return ll.Network(features, head)


@dataclass(frozen=True)
class Categorical(Likelihood):
    """Classification: targets are class indices, (*batch,)."""

    def output(self, min_variance: float | None = None) -> Output:
        """A softmax."""
        return SoftmaxOutput(self.num_targets)

    def head(
        self, num_features: int, *, initial_scale: float | None = None, **options: Any
    ) -> ll.DiscriminativeClassification:
        """A discriminative head, whose initial weights are its own: labels have no scale."""
        return ll.DiscriminativeClassification(num_features, self.num_targets, **options)

    def posttrained(self, network: nn.Sequential, output: Output, data: Pair) -> ll.Network:
        """The optimum of the discriminative head's objective."""
        layer = network[-1]
        assert isinstance(layer, nn.Linear)
        prior = ll.Prior(variance=float(layer.weight.detach().square().mean()))
        return ll.posttrain(network, data, "discriminative", prior=prior, progress=False)


class ScaledRegression(ll.Regression):
    r"""Regression whose initial weights are at the scale of the targets.

    Args:
        num_features: N, the width of the features.
        num_outputs: K.
        initial_scale: standard deviation of the weights, in root mean squares of the targets over
            $\sqrt{N}$.
        options: of `Regression`.
    """

    def __init__(
        self, num_features: int, num_outputs: int = 1, *, initial_scale: float, **options: Any
    ) -> None:
        super().__init__(num_features, num_outputs, **options)
        self.initial_scale = initial_scale

    @torch.no_grad()
    def initialize_scale(self, mean_square: Tensor) -> None:
        """Let noise and weights be at the scale of the targets."""
        super().initialize_scale(mean_square)
        stddev = self.initial_scale * (mean_square / self.width).sqrt()
        self.mean.normal_().mul_(stddev.unsqueeze(-1))
