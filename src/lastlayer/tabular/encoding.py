"""Codes of a table as features of order one, inside the model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Encoding(nn.Module):
    """Codes, (*batch, num_columns), to what a network takes, (*batch, width).

    A number becomes its distance from the mean in standard deviations, zero if it is missing. A
    category becomes one column for each of its levels, 1 or 0. Where training data had missing
    values, another column says so. All columns but the numbers' are centred only.

    Make one by `fit`; the sizes are for loading a saved one.

    Args:
        num_columns: of the codes.
        width: how many columns it returns.
    """

    complete: Tensor  # 1 for columns that were never missing, (num_columns,)

    source: Tensor  # which code, (width,)
    level: Tensor  # that makes it 1, (width,); −1 for numbers, −2 for what is missing
    location: Tensor  # (width,)
    scale: Tensor  # (width,)

    def __init__(self, num_columns: int, width: int) -> None:
        super().__init__()
        self.register_buffer("complete", torch.zeros(num_columns, dtype=torch.float64))
        for name in ("source", "level"):
            self.register_buffer(name, torch.zeros(width, dtype=torch.int64))
        for name, value in (("location", 0.0), ("scale", 1.0)):
            self.register_buffer(name, torch.full((width,), value, dtype=torch.float64))

    @property
    def width(self) -> int:
        """How many columns it returns."""
        return len(self.source)

    @classmethod
    def fit(cls, codes: Tensor, num_levels: Sequence[int], weight: Tensor) -> Encoding:
        """For the codes of training data.

        Args:
            codes: (num_rows, num_columns), NaN for what is missing.
            num_levels: of each column, 0 for numbers.
            weight: of each row, (num_rows,).
        """
        missing = codes.isnan().any(0)
        columns = []
        for at, levels in enumerate(num_levels):
            columns += [(at, level) for level in (range(levels) if levels else [-1])]
            columns += [(at, -2)] if missing[at] else []
        encoding = cls(len(num_levels), len(columns)).to(codes.device)
        encoding.complete.copy_(~missing)
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
        """The features, in the dtype of the codes."""
        values = (self._raw(codes) - self.location) / self.scale
        unknown = codes[..., self.source].isnan() & (self.level == -1)
        return values.where(~unknown, 0.0).to(codes.dtype)

    def new_gaps(self, codes: Tensor) -> Tensor:
        """How many values are missing where none was in training, (*batch,)."""
        return codes.isnan().to(self.complete) @ self.complete

    def _raw(self, codes: Tensor) -> Tensor:
        """Numbers as they are, levels and missing values as 1 or 0, (*batch, width)."""
        wide = codes[..., self.source].to(self.location.dtype)
        missing = wide.isnan()
        # numbers throughout: onnxruntime chooses between no booleans
        found = torch.where(self.level == -2, missing.to(wide.dtype), (wide == self.level).to(wide))
        return torch.where(self.level == -1, wide.where(~missing, 0.0), found)

    def extra_repr(self) -> str:
        """The width, for printing."""
        return f"width={self.width}"


def location_and_scale(values: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of columns (T, K) with weights that broadcast, (K,) each.

    The scale of what does not vary beyond rounding is one.
    """
    largest = values.abs().amax(0)
    largest = largest.where(largest > 0, 1.0)  # squares of what is very large or small
    values = values / largest
    total = weight.sum(0).clamp(min=torch.finfo(weight.dtype).tiny)
    mean = (weight * values).sum(0) / total
    stddev = ((weight * (values - mean).square()).sum(0) / total).sqrt()
    varies = stddev > 1e-12 * mean.abs()
    return largest * mean, (largest * stddev).where(varies, 1.0)
