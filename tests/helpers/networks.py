"""Small networks and data for the tests of training."""

from typing import Any

import torch
from torch import Tensor, nn

import lastlayer as ll

NUM_DATA = 37  # not a multiple of any batch size


def backbone(width: int = 6, *extra: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, width), nn.LeakyReLU(), *extra, nn.Linear(width, width))


def regression(seed: int = 0, *extra: nn.Module, **options: Any) -> ll.Network:
    torch.manual_seed(seed)
    return ll.Network(backbone(6, *extra), ll.Regression(6, 1, num_data=NUM_DATA, **options))


def classification(seed: int = 0, *, generative: bool = False) -> ll.Network:
    torch.manual_seed(seed)
    make = ll.GenerativeClassification if generative else ll.DiscriminativeClassification
    return ll.Network(backbone(), make(6, 3, num_data=NUM_DATA))


def curve(seed: int = 0, count: int = NUM_DATA) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 2, generator=generator)
    noise = torch.randn(count, 1, generator=generator)
    return inputs, (2 * inputs).sin().sum(-1, keepdim=True) + 0.1 * noise


def classes(seed: int = 0, count: int = NUM_DATA) -> tuple[Tensor, Tensor]:
    inputs, target = curve(seed, count)
    return inputs, (target.squeeze(-1) > 0).long() + (target.squeeze(-1) > 1).long()
