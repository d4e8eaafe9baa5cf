"""Network inputs and their places among quantiles: piecewise linear encoding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

FEW_VALUES = 4  # of an input, below which it has no bins
ENOUGH_ROWS = 20_000  # for quantiles
MAX_BINS = 512  # beyond which they are not tried
MANY_ROWS = 2000  # from which on there are more bins


class Bins(nn.Module):
    r"""Inputs, and for each bin between quantiles of an input how far a value has come through it.

    $$\mathrm{clip}((x - a)/(b - a), 0, 1)$$ for a bin [a, b] (Gorishniy et al., 2022). A layer on
    top of these can bend or jump between bins, as trees do; beyond the outermost quantiles it is
    linear in the inputs.

    Args:
        width: of the inputs.
        count: number of bins, of all inputs together.
    """

    source: Tensor  # the input of each bin, (count,)
    start: Tensor  # (count,)
    size: Tensor  # (count,)

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("source", torch.zeros(count, dtype=torch.int64))
        self.register_buffer("start", torch.zeros(count))
        self.register_buffer("size", torch.ones(count))

    @classmethod
    def fit(cls, inputs: Tensor) -> Bins:
        """Bins with equally many rows each, of inputs (T, width) that have enough values."""
        per_input = 16 if len(inputs) >= MANY_ROWS else 8
        shares = torch.linspace(0, 1, per_input + 1).to(inputs)
        source: list[Tensor] = []
        start: list[Tensor] = []
        size: list[Tensor] = []
        for at, values in enumerate(inputs[:: -(-len(inputs) // ENOUGH_ROWS)].T):
            ends = values.quantile(shares).unique()
            if len(ends) >= FEW_VALUES:
                source += [torch.full_like(ends[1:], at)]
                start += [ends[:-1]]
                size += [ends.diff()]
        bins = cls(inputs.shape[-1], sum(map(len, source))).to(inputs)
        for name, parts in (("source", source), ("start", start), ("size", size)):
            if parts:
                getattr(bins, name).copy_(torch.cat(parts))
        return bins

    @property
    def num_bins(self) -> int:
        """The number of bins, of all inputs together."""
        return len(self.source)

    @property
    def num_outputs(self) -> int:
        """The inputs and the bins."""
        return self.width + self.num_bins

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs (*batch, width) with their places in bins, (*batch, num_outputs)."""
        places = (inputs[..., self.source] - self.start) / self.size
        return torch.cat([inputs, places.clamp(0, 1)], -1)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"width={self.width}, count={self.num_bins}"
