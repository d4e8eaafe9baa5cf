"""A wide residual network (Zagoruyko & Komodakis, 2016), the paper's CIFAR backbone."""

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions, normalised and rectified before each, and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut = None
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        residual = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return residual + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """WRN-depth-widen without its last layer: images (B, 3, H, W) to features (B, 64 · widen)."""

    def __init__(self, depth: int = 28, widen: int = 10) -> None:
        super().__init__()
        blocks_per_stage = (depth - 4) // 6
        channels = 16
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False)]
        for stage in range(3):
            width = 16 * widen * 2**stage
            for index in range(blocks_per_stage):
                stride = 2 if stage > 0 and index == 0 else 1
                layers.append(Block(channels, width, stride))
                channels = width
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU())
        self.num_features = channels

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).mean((-2, -1))
