"""Masses, levels and quantiles: checks, bisection, and quadrature between them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

NUM_MASSES = 129


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


def spread_masses(like: Tensor) -> Tensor:
    """Masses from nearly zero to nearly one, evenly spaced in their log-odds, (points, 1, …)."""
    largest = min(20.0, -math.log(torch.finfo(like.dtype).eps))
    log_odds = torch.linspace(-largest, largest, NUM_MASSES, dtype=like.dtype, device=like.device)
    return log_odds.sigmoid().reshape(-1, *[1] * like.ndim)


def simpson(function: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """The integral of a function between ascending points, (points, …), by Simpson's rule."""
    ends, middles = function(points), function(points[:-1].lerp(points[1:], 0.5))
    return (points.diff(dim=0) * (ends[:-1] + 4 * middles + ends[1:])).sum(0) / 6
