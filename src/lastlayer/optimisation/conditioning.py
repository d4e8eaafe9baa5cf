"""A joint predictive given further observations, exactly and as a function of where they were."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..functional import low_rank_condition


class Values(NamedTuple):
    """Values of m functions at q points, jointly Gaussian: mean + factor · z, z standard normal."""

    mean: Tensor  # (*batch, q, m)
    factor: Tensor  # (*batch, m, q, M)

    def select(self, outputs: list[int]) -> Values:
        """Those of some functions."""
        return Values(self.mean[..., outputs], self.factor[..., outputs, :, :])

    def affine(self, location: Tensor, scale: Tensor) -> Values:
        """Those of location + scale · values, for (*batch, q, m) each."""
        return Values(location + scale * self.mean, scale.mT.unsqueeze(-1) * self.factor)


class Observations(NamedTuple):
    """What observations say of z: a change of rank n to every factor, and a shift of every mean.

    The leading dimensions of `shift` are those of the observed values, and may be more than those
    of the points: the change of a factor depends on the points alone.
    """

    shift: Tensor  # E[z | observations], (*batch, m, M)
    white: Tensor  # E, (*batch, m, n, M)
    half: Tensor  # D, (*batch, m, n, M)

    @classmethod
    def of(cls, values: Values, target: Tensor, variance: Tensor) -> Observations:
        """What targets (*batch, n, m) with noise of given variances say, at points of values."""
        scale = variance.sqrt().mT  # (…, m, n)
        error = (target - values.mean).mT / scale
        return cls(*low_rank_condition(error, values.factor / scale.unsqueeze(-1)))

    def condition(self, values: Values) -> Values:
        """The values given these observations."""
        factor = values.factor
        mean = values.mean + (factor @ self.shift.unsqueeze(-1)).squeeze(-1).mT
        return Values(mean, factor - (factor @ self.white.mT) @ self.half)

    def draw(self, base: Tensor) -> Tensor:
        """z given these observations, (*sample_shape, *batch, m, M), from given z before them."""
        change = (base.unsqueeze(-2) @ self.half.mT) @ self.white  # zᵀCᵀ = zᵀ(I − DᵀE)
        return base - change.squeeze(-2) + self.shift

    def select(self, outputs: list[int]) -> Observations:
        """What they say of the z of some functions."""
        parts = self.white[..., outputs, :, :], self.half[..., outputs, :, :]
        return Observations(self.shift[..., outputs, :], *parts)

    @property
    def batch_shape(self) -> torch.Size:
        """The leading dimensions of the observed values."""
        return self.shift.shape[:-2]
