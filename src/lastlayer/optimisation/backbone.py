"""Features for few observations: waves whose lengths are learned, at the scale of the outcomes."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn


class Waves(nn.Module):
    r"""Waves of inputs in the unit cube, $\phi_j(x) = \sqrt{2/N}\,\sin(w_j^\top (s\circ x) + b_j)$.

    With Gaussian w and uniform b a last layer on them is close to a Gaussian process with a
    squared exponential kernel (Rahimi & Recht, 2007), whose lengths are 1/s. Unlike that kernel
    the waves can be trained. Initially the typical distance between two points is as many lengths
    in any number of dimensions.

    Args:
        num_inputs: d.
        num_features: N.
    """

    def __init__(self, num_inputs: int, num_features: int = 256) -> None:
        super().__init__()
        self.num_features = num_features
        self.log_input_scale = nn.Parameter(torch.zeros(num_inputs))  # s, of each input
        self.log_common_scale = nn.Parameter(torch.zeros(()))  # that all of them have in common
        self.linear = nn.Linear(num_inputs, num_features)
        nn.init.normal_(self.linear.weight, std=num_inputs**-0.5)
        nn.init.uniform_(self.linear.bias, -math.pi, math.pi)

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (*batch, N) of inputs (*batch, d)."""
        scale = (self.log_input_scale + self.log_common_scale).exp()
        centered = (inputs - 0.5) * math.sqrt(12)  # of unit variance, if uniform
        return (2 / self.num_features) ** 0.5 * self.linear(centered * scale).sin()


class Scaled(nn.Module):
    """Features of a backbone, times a factor that is learned: the prior variance of the weights.

    Args:
        backbone: from inputs to features.

    Attributes:
        initial: the backbone as it was initialised, to which its weights are held.
    """

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone, self.initial = backbone, copy.deepcopy(backbone)
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (*batch, N) of inputs (*batch, d)."""
        return self.log_scale.exp() * self.backbone(inputs)
