"""From bytes to numbers, and random changes of images that leave their class as it is."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Pixels(nn.Module):
    """Standardises the bytes of each colour, by the statistics of training images.

    Networks begin with it, so that other images, too, are seen in the units of the training data.

    Args:
        mean: of each colour, (3,).
        stddev: of each colour, (3,).
    """

    mean: Tensor
    stddev: Tensor

    def __init__(self, mean: Tensor, stddev: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.float().reshape(-1, 1, 1))
        self.register_buffer("stddev", stddev.float().reshape(-1, 1, 1))

    @classmethod
    def of(cls, images: Tensor) -> Pixels:
        """With the statistics of images, (T, 3, H, W)."""
        values = torch.arange(256.0, dtype=torch.float64)
        mean, stddev = [], []
        for colour in images.unbind(1):
            share = torch.bincount(colour.flatten().int(), minlength=256) / colour.numel()
            mean.append((share * values).sum())
            stddev.append((share * (values - mean[-1]).square()).sum().sqrt())
        return cls(torch.stack(mean), torch.stack(stddev))

    def forward(self, images: Tensor) -> Tensor:
        """From bytes (B, 3, H, W) to numbers of mean zero and variance one, about."""
        images = images.to(self.mean.dtype, memory_format=torch.channels_last)
        return (images - self.mean) / self.stddev


class FlipAndShift:
    """Random reflections left to right, and shifts by some pixels, with reflected margins.

    Args:
        pixels: the largest shift, in either direction.
    """

    def __init__(self, pixels: int) -> None:
        self.pixels = pixels

    def __call__(self, images: Tensor) -> Tensor:
        """Other images of the same shape, (B, C, H, W), each with a draw of its own."""
        count, height, width = len(images), *images.shape[-2:]
        padded = F.pad(images.float(), [self.pixels] * 4, mode="reflect").to(images.dtype)
        down, right = torch.randint(2 * self.pixels + 1, (2, count, 1), device=images.device)
        flipped = torch.rand(count, 1, device=images.device) < 0.5
        columns = torch.arange(width, device=images.device)
        columns = torch.where(flipped, width - 1 - columns, columns) + right  # (B, W)
        rows = torch.arange(height, device=images.device) + down  # (B, H)
        examples = torch.arange(count, device=images.device)[:, None, None]
        chosen = padded.permute(0, 2, 3, 1)[examples, rows[:, :, None], columns[:, None, :]]
        return chosen.permute(0, 3, 1, 2)

    def __repr__(self) -> str:
        return f"FlipAndShift({self.pixels})"
