"""Which of many network inputs have to do with the target: marginal screening."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .encoding import location_and_scale

MANY_INPUTS = 20  # from which on it is asked whether some are of no use
ENOUGH_ROWS = 1500  # to decide by
NUM_FOLDS = 3
CLEARLY = 0.9  # of the error, below which inputs are left out


class Screen(nn.Module):
    """Network inputs, zero where they have nothing to do with the target.

    Args:
        width: of the inputs.
    """

    kept: Tensor  # 1 or 0, (width,)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(width))

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs that are kept, (*batch, width)."""
        return inputs * self.kept

    @torch.no_grad()
    def fit(self, inputs: Tensor, target: Tensor, weight: Tensor) -> Screen:
        """Keep inputs that correlate with a target, by themselves or by their squares.

        More than the largest of as many correlations with an unrelated target would:
        √(2 log(2 · width · K) / T) (Fan & Lv, 2008).

        Args:
            inputs: (T, width).
            target: (T, K).
            weight: (T,).
        """
        candidates, known = (_standardised(part, weight) for part in (_curves(inputs), target))
        products = (weight.unsqueeze(-1) * candidates).mT @ known / weight.sum()
        strength = products.abs().amax(-1).reshape(2, -1).amax(0)
        count = candidates.shape[-1] * known.shape[-1]
        kept = strength > math.sqrt(2 * math.log(count) / len(inputs))
        kept[strength.argmax()] = True
        self.kept.copy_(kept)
        return self


@torch.no_grad()
def screening_helps(seed: int, inputs: Tensor, target: Tensor, weight: Tensor) -> bool:
    """Whether ridge regression of held-out rows is clearly better on what a screen keeps.

    On inputs and their squares, each with the best of some penalties. If the difference is small,
    the network is given all inputs: what it makes of them is more than curves.
    """
    if inputs.shape[-1] < MANY_INPUTS or len(inputs) < 2 * NUM_FOLDS:
        return False
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    order = order[:ENOUGH_ROWS].to(inputs.device)
    errors = torch.zeros(2, 1, dtype=torch.float64)
    for held_out in order.chunk(NUM_FOLDS):
        rest = order[~torch.isin(order, held_out)]
        screen = Screen(inputs.shape[-1]).to(inputs).fit(inputs[rest], target[rest], weight[rest])
        parts = [(part[rest], part[held_out]) for part in (target, weight)]
        errors = errors + torch.stack(
            [
                _ridge_errors((_curves(x[rest]), _curves(x[held_out])), *parts)
                for x in (inputs, screen(inputs))
            ]
        )
    everything, screened = errors.amin(-1).tolist()
    return bool(screened < CLEARLY * everything)


def _ridge_errors(
    inputs: tuple[Tensor, Tensor], target: tuple[Tensor, Tensor], weight: tuple[Tensor, Tensor]
) -> Tensor:
    """Weighted squared errors of held-out rows by penalties, from pairs of parts, (penalties,)."""
    location, scale = location_and_scale(inputs[0].double(), weight[0].double().unsqueeze(-1))
    train, test = ((part.double() - location) / scale for part in inputs)
    root = weight[0].double().sqrt().unsqueeze(-1)
    level = (root.square() * target[0]).sum(0) / root.square().sum()
    values, vectors = torch.linalg.eigh((root * train) @ (root * train).mT)
    known = vectors.mT @ (root * (target[0] - level))  # (T, K)
    across = test @ (root * train).mT @ vectors
    penalties = values.mean() * 10 ** torch.linspace(-3, 3, 7, dtype=values.dtype).to(values)
    predicted = torch.stack([across @ (known / (values + p).unsqueeze(-1)) for p in penalties])
    errors = (predicted + level - target[1]).square().sum(-1)  # (penalties, rows)
    return (errors @ weight[1].double()).cpu()


def _curves(inputs: Tensor) -> Tensor:
    """Inputs and their squares, (T, 2 · width)."""
    return torch.cat([inputs, inputs.square()], -1)


def _standardised(values: Tensor, weight: Tensor) -> Tensor:
    location, scale = location_and_scale(values.double(), weight.double().unsqueeze(-1))
    return ((values.double() - location) / scale).to(weight)
