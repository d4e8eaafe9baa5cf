"""The observations of a model: inputs, outcomes and, where they are known, variances of noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

PRECISIONS = (torch.float32, torch.float64)


class Data(NamedTuple):
    """Inputs (*batch, n, d), outcomes (*batch, n, m), and variances of their noise or None."""

    inputs: Tensor
    outcomes: Tensor
    variances: Tensor | None = None

    @property
    def num_inputs(self) -> int:
        """The number of inputs, d."""
        return self.inputs.shape[-1]

    @property
    def num_outputs(self) -> int:
        """The number of outputs, m."""
        return self.outcomes.shape[-1]

    def check(self, like: Data | None = None) -> None:
        """Raise unless these can be the observations of a model, or be added to those of one."""
        inputs, outcomes, variances = self
        if inputs.ndim != 2 or outcomes.ndim != 2 or len(inputs) != len(outcomes):
            raise ValueError(
                f"expected inputs (n, d) and outcomes (n, m), got {tuple(inputs.shape)} and "
                f"{tuple(outcomes.shape)}; outcomes of one output have shape (n, 1), and batches "
                "of data sets need a model each"
            )
        if len(inputs) == 0:
            raise ValueError("expected at least one observation, got none")
        if variances is not None and variances.shape != outcomes.shape:
            raise ValueError(
                f"variances must have the shape of the outcomes, {tuple(outcomes.shape)}, got "
                f"{tuple(variances.shape)}"
            )
        for name, tensor in zip(("inputs", "outcomes", "variances"), self, strict=True):
            if tensor is None:
                continue
            if tensor.dtype not in PRECISIONS or tensor.dtype != inputs.dtype:
                raise TypeError(
                    f"{name} must be float32 or float64, all of one dtype, got {tensor.dtype} "
                    f"beside inputs of {inputs.dtype}; convert them with .to(dtype)"
                )
            if not tensor.isfinite().all():
                raise ValueError(f"{name} must be finite, got NaN or infinity; drop such rows")
            if not tensor.square().sum().isfinite():
                raise ValueError(f"{name} are so large that squares overflow; scale them down")
        if variances is not None and not (variances > 0).all():
            raise ValueError("variances must be above zero; pass none to estimate the noise")
        if like is not None:
            self._check_like(like)

    def _check_like(self, other: Data) -> None:
        shapes = self.num_inputs, self.num_outputs
        expected = other.num_inputs, other.num_outputs
        if shapes != expected:
            raise ValueError(f"expected (d, m) = {expected}, got {shapes}")
        if (self.variances is None) != (other.variances is None):
            raise ValueError(
                "either all observations come with the variance of their noise, or none; the "
                f"first came {'without' if other.variances is None else 'with'}"
            )

    def join(self, other: Data) -> Data:
        """Both, one after the other, with the leading dimensions of both."""
        variances = None
        if self.variances is not None and other.variances is not None:
            variances = joined(self.variances, other.variances)
        return Data(
            joined(self.inputs, other.inputs), joined(self.outcomes, other.outcomes), variances
        )

    def map(self, function: Callable[[Tensor], Tensor]) -> Data:
        """A function of every tensor."""
        variances = None if self.variances is None else function(self.variances)
        return Data(function(self.inputs), function(self.outcomes), variances)

    def rows(self, rows: Tensor) -> Data:
        """Some of the observations, by index."""
        return self.map(lambda part: part[rows])

    def select(self, outputs: list[int]) -> Data:
        """The observations of some outputs."""
        variances = None if self.variances is None else self.variances[..., outputs]
        return Data(self.inputs, self.outcomes[..., outputs], variances)


def check_inputs(inputs: Tensor, data: Data) -> None:
    """Raise unless inputs are (*batch, q, d), of the dtype of the data."""
    if inputs.ndim < 2 or inputs.shape[-1] != data.num_inputs:
        raise ValueError(
            f"expected inputs (*batch, q, {data.num_inputs}), got shape {tuple(inputs.shape)}"
        )
    if inputs.shape[-2] == 0:
        raise ValueError(f"expected at least one point, got shape {tuple(inputs.shape)}")
    if inputs.dtype != data.inputs.dtype:
        raise TypeError(
            f"expected inputs of {data.inputs.dtype}, as those of training, got {inputs.dtype}"
        )


def joined(first: Tensor, second: Tensor) -> Tensor:
    """Rows of both, (*batch, n, …)."""
    batch = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    return torch.cat([part.expand(*batch, *part.shape[-2:]) for part in (first, second)], -2)
