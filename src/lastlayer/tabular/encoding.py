"""Codes of a table as standardised network inputs, inside the model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

RARE = 0.05  # share of rows below which a level says little about how unusual its rows are


class Encoding(nn.Module):
    """Codes, (*batch, num_columns), to standardised network inputs, (*batch, width).

    A number is standardised, and zero if it is missing. A category becomes one indicator column
    for each level. A column with missing values in training has one more indicator, of being
    missing. Indicators are centred but not scaled.

    Construct one by `fit`; the sizes are for loading a saved one.

    Args:
        num_columns: columns of the codes.
        width: columns of the output.
    """

    complete: Tensor  # 1 for columns without missing values in training, (num_columns,)
    category: Tensor  # 1 for columns with levels, (num_columns,)
    source: Tensor  # the column of the codes, (width,)
    level: Tensor  # the code that an indicator is of, (width,); −1 for numbers, −2 for missing
    location: Tensor  # (width,)
    scale: Tensor  # (width,)

    def __init__(self, num_columns: int, width: int) -> None:
        super().__init__()
        for name in ("complete", "category"):
            self.register_buffer(name, torch.zeros(num_columns, dtype=torch.float64))
        for name in ("source", "level"):
            self.register_buffer(name, torch.zeros(width, dtype=torch.int64))
        for name, value in (("location", 0.0), ("scale", 1.0)):
            self.register_buffer(name, torch.full((width,), value, dtype=torch.float64))

    @property
    def width(self) -> int:
        """Columns of the output."""
        return len(self.source)

    @classmethod
    def fit(cls, codes: Tensor, num_levels: Sequence[int], weight: Tensor) -> Encoding:
        """An encoding with the moments of training data.

        Args:
            codes: (num_rows, num_columns), NaN for missing values.
            num_levels: number of levels of each column, 0 for numbers.
            weight: weight of each row, (num_rows,).
        """
        missing = codes.isnan().any(0)
        columns = []
        for at, levels in enumerate(num_levels):
            columns += [(at, level) for level in (range(levels) if levels else [-1])]
            columns += [(at, -2)] if missing[at] else []
        encoding = cls(len(num_levels), len(columns)).to(codes.device)
        encoding.complete.copy_(~missing)
        encoding.category.copy_(torch.tensor(num_levels) > 0)
        pairs = torch.tensor(columns, dtype=torch.int64).reshape(-1, 2)
        encoding.source.copy_(pairs[:, 0])
        encoding.level.copy_(pairs[:, 1])
        values = encoding._raw(codes.double())
        known = weight.double().unsqueeze(-1) * (
            ~codes[:, encoding.source].isnan() | (encoding.level != -1)
        )
        mean, stddev = location_and_scale(values, known)
        encoding.location.copy_(mean)
        encoding.scale.copy_(stddev.where(encoding.level == -1, 1.0))
        return encoding

    def forward(self, codes: Tensor) -> Tensor:
        """The network inputs, in the dtype of the codes."""
        values = (self._raw(codes) - self.location) / self.scale
        unknown = codes[..., self.source].isnan() & (self.level == -1)
        return values.where(~unknown, 0.0).to(codes.dtype)

    def usual(self, inputs: Tensor) -> Tensor:
        """Network inputs with indicators of rare levels at their means, (*batch, width).

        A Gaussian density would take a rare level for an outlier of 1/√share standard deviations.
        """
        share = self.location.minimum(1 - self.location)
        return inputs * ((self.level == -1) | (share >= RARE)).to(inputs)

    def num_newly_missing(self, codes: Tensor) -> Tensor:
        """The number of missing values in columns that were complete in training, (*batch,)."""
        return codes.isnan().to(self.complete) @ self.complete

    def absent(self, codes: Tensor) -> Tensor:
        """1 for values that training has not seen: newly missing, or new levels, like the codes."""
        missing = codes.isnan().to(self.complete) * self.complete
        return missing + (codes == -1).to(self.complete) * self.category

    def without(self, column: int, inputs: Tensor) -> Tensor:
        """Network inputs, (*batch, width), as if the values of a column were absent."""
        codes = torch.where(self.category > 0, -1.0, torch.nan)
        return inputs.where(self.source != column, self(codes).to(inputs))

    def _raw(self, codes: Tensor) -> Tensor:
        """Numbers as they are, indicators of levels and missing values, (*batch, width)."""
        wide = codes[..., self.source].to(self.location.dtype)
        missing = wide.isnan()
        # floats throughout: `Where` of onnxruntime takes no booleans
        equal = (wide == self.level).to(wide)
        indicators = torch.where(self.level == -2, missing.to(wide.dtype), equal)
        return torch.where(self.level == -1, wide.where(~missing, 0.0), indicators)

    def extra_repr(self) -> str:
        """The width, for printing."""
        return f"width={self.width}"


def location_and_scale(values: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean and standard deviation of columns (T, K), weights broadcast, (K,) each.

    The scale of a column that is constant up to rounding is one.
    """
    largest = values.abs().amax(0)
    largest = largest.where(largest > 0, 1.0)  # squares neither overflow nor underflow
    values = values / largest
    total = weight.sum(0).clamp(min=torch.finfo(weight.dtype).tiny)
    mean = (weight * values).sum(0) / total
    stddev = ((weight * (values - mean).square()).sum(0) / total).sqrt()
    varies = stddev > 1e-12 * mean.abs()
    return largest * mean, (largest * stddev).where(varies, 1.0)
