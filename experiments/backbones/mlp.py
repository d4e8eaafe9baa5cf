"""The network of the UCI experiments: two hidden layers of 50 leaky ReLU units (appendix D)."""

from __future__ import annotations

from torch import nn

WIDTH, DEPTH = 50, 2


def features(num_inputs: int, width: int = WIDTH, depth: int = DEPTH) -> nn.Sequential:
    """From inputs (*batch, num_inputs) to features (*batch, width)."""
    layers: list[nn.Module] = []
    for size in (num_inputs, *[width] * (depth - 1)):
        layers += [nn.Linear(size, width), nn.LeakyReLU()]
    return nn.Sequential(*layers)
