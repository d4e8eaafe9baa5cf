"""Masses, levels and quantiles: checks, bisection, and a quadrature rule."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

MASS_NODES = 33  # of the tanh-sinh rule


def check_level(level: float) -> None:
    """Raise unless level is a probability strictly between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}; 0.9 is 90 percent")


def as_mass(mass: float | Tensor) -> Tensor:
    """A checked probability; of a number a tensor that does not change the dtype of others."""
    if isinstance(mass, Tensor):
        return mass
    if not 0 < mass < 1:
        raise ValueError(f"mass must lie between 0 and 1, got {mass!r}; 0.5 is the median")
    return torch.tensor(mass, dtype=torch.float64, device="cpu")


def bisect(
    cdf: Callable[[Tensor], Tensor], lower: Tensor, upper: Tensor, mass: Tensor, doublings: int = 1
) -> Tensor:
    """Where a distribution function reaches a mass, between two ends, to the last digit.

    Args:
        cdf: the distribution function.
        lower: below the quantile.
        upper: above the quantile.
        mass: of a shape that broadcasts to that of the ends.
        doublings: log₂ of the distance of the ends in units of what the digits are relative to.
    """
    for _ in range(round(doublings - math.log2(torch.finfo(lower.dtype).eps))):
        middle = lower + 0.5 * (upper - lower)
        below = cdf(middle) < mass
        lower, upper = middle.where(below, lower), upper.where(below, middle)
    return lower + 0.5 * (upper - lower)


def tanh_sinh(like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights for integrals over (0, 1) whose integrands may be singular at the ends."""
    ends = torch.linspace(-3, 3, MASS_NODES, dtype=like.dtype, device=like.device)
    ends = ends.reshape(-1, *[1] * like.ndim)
    node = (math.pi * ends.sinh()).sigmoid()
    slope = math.pi * ends.cosh() * node * (1 - node)
    return node, slope * (6 / (MASS_NODES - 1))
