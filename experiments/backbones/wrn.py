"""Wide residual networks (Zagoruyko & Komodakis, 2016), the paper's for images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .pixels import Pixels

DEPTH, WIDEN = 28, 10
NUM_FEATURES = 64 * WIDEN


def features(images: Tensor, depth: int = DEPTH, widen: int = WIDEN) -> nn.Sequential:
    """The network from bytes (B, 3, 32, 32) to features (B, 64 · widen).

    Args:
        images: of the training data, for means and standard deviations, (T, 3, 32, 32).
        depth: number of layers, 6n + 4.
        widen: channels, in multiples of 16, 32 and 64.
    """
    count, rest = divmod(depth - 4, 6)
    if rest or count < 1:
        raise ValueError(f"depth must be 6n + 4 for some n above zero, got {depth}")
    layers: list[nn.Module] = [Pixels.of(images), _convolution(3, 16)]
    width = 16
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        for number in range(count):
            layers.append(Block(width, widen * channels, stride if number == 0 else 1))
            width = widen * channels
    layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class Block(nn.Module):
    """Two convolutions, each after a norm and a ReLU, added to the input."""

    def __init__(self, num_inputs: int, num_outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = (
            nn.BatchNorm2d(num_inputs),
            _convolution(num_inputs, num_outputs, stride=stride),
        )
        self.norm2, self.conv2 = nn.BatchNorm2d(num_outputs), _convolution(num_outputs, num_outputs)
        self.shortcut = (
            nn.Identity()
            if num_inputs == num_outputs
            else _convolution(num_inputs, num_outputs, size=1, stride=stride)
        )

    def forward(self, images: Tensor) -> Tensor:
        """From (B, C, H, W) to (B, C', H / stride, W / stride)."""
        active = F.relu(self.norm1(images))
        same = isinstance(self.shortcut, nn.Identity)
        hidden = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return hidden + (images if same else self.shortcut(active))


def _convolution(num_inputs: int, num_outputs: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(num_inputs, num_outputs, size, stride=stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
