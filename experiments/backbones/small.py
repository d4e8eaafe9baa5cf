"""A small convolutional network that trains in minutes on a processor (Jordan, 2024).

A frozen whitening of patches of 2 × 2 pixels, then three blocks of two convolutions, from bytes to
128 features. Facts of the published recipe ("airbench"); label smoothing and averages over
shifted images in prediction, which it has, are left out: they distort likelihoods.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .pixels import Pixels

WIDTHS = (64, 128, 128)
NUM_FEATURES = WIDTHS[-1]
SCALE = 1 / 9  # of the features, and so of the logits
MOMENTUM = 0.4  # of batch norm: what the newest batch counts
NUM_PATCH_IMAGES = 5000
RIDGE = 5e-4  # on the variances of patches

# Biases of batch norms learn faster, and decay as slowly as the rest (see `ll.fit`, groups).
BIAS_RATE = 64.0
GROUPS = {"*.norm*.bias": {"learning_rate": BIAS_RATE, "weight_decay": 1 / BIAS_RATE}}


def features(images: Tensor, widths: tuple[int, ...] = WIDTHS) -> nn.Sequential:
    """The network from bytes (B, 3, 32, 32) to features (B, 128).

    Args:
        images: of the training data, for means, standard deviations and whitening, (T, 3, 32, 32).
        widths: channels of the three blocks.
    """
    pixels = Pixels.of(images)
    white = whitening(pixels(images[:NUM_PATCH_IMAGES]))
    layers: list[nn.Module] = [pixels, white, nn.GELU()]
    width = white.out_channels
    for channels in widths:
        layers.append(Block(width, channels))
        width = channels
    layers += [nn.MaxPool2d(3), nn.Flatten(), Scale(SCALE)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@torch.no_grad()
def whitening(images: Tensor, size: int = 2) -> nn.Conv2d:
    """A frozen convolution whose outputs are the principal components of patches, and minus them.

    Args:
        images: normalised, (T, C, H, W).
        size: of patches, in pixels.
    """
    patches = F.unfold(images.float(), size).transpose(1, 2).flatten(0, 1)  # (T·places, C·size²)
    covariance = patches.T.double() @ patches.double() / len(patches)
    variances, vectors = torch.linalg.eigh(covariance)
    filters = (vectors / (variances + RIDGE).sqrt()).T.flip(0).float()
    filters = filters.reshape(-1, images.shape[1], size, size)
    layer = nn.Conv2d(images.shape[1], 2 * len(filters), size, bias=False)
    layer.weight.copy_(torch.cat([filters, -filters]))
    return layer.requires_grad_(False)


class Block(nn.Module):
    """Convolution, pooling, norm, GELU, convolution, norm, GELU: half the side, other channels."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _convolution(num_inputs, num_outputs), _norm(num_outputs)
        self.conv2, self.norm2 = _convolution(num_outputs, num_outputs), _norm(num_outputs)

    def forward(self, images: Tensor) -> Tensor:
        """From (B, C, H, W) to (B, C', H // 2, W // 2)."""
        hidden = F.gelu(self.norm1(F.max_pool2d(self.conv1(images), 2)))
        return F.gelu(self.norm2(self.conv2(hidden)))


class Scale(nn.Module):
    """Multiplies by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, values: Tensor) -> Tensor:
        """The values, times the factor."""
        return self.factor * values

    def extra_repr(self) -> str:
        """The factor, for printing."""
        return f"factor={self.factor:.4g}"


def _convolution(num_inputs: int, num_outputs: int) -> nn.Conv2d:
    """A convolution that begins with copies of its inputs, as far as there are outputs for them."""
    layer = nn.Conv2d(num_inputs, num_outputs, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(layer.weight[:num_inputs])
    return layer


def _norm(num_channels: int) -> nn.BatchNorm2d:
    """A batch norm with a bias, but no scale to learn."""
    layer = nn.BatchNorm2d(num_channels, momentum=MOMENTUM)
    layer.weight.requires_grad_(False)
    return layer
