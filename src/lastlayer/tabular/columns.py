"""The columns of a table: what kind each is, and their values as codes."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from .values import as_days, as_numbers, as_texts, with_dates

Codes = NDArray[np.float64]

FEW_LEVELS = 32  # of a category have a code of their own, however rare
MAX_LEVELS = 256  # of a category, with at least so many rows each; others are as unseen ones are
ROWS_OF_A_LEVEL = 10


class AlmostNumbers(UserWarning):
    """A column is read as text although most of its values are numbers."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: in the frame; a number if the table is an array.
        kind: "number", "date", "category" or "ignored".
        levels: levels of a category as text, the most frequent first.
        note: what a user should know about how the column is read; may be empty.
    """

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    note: str = ""

    @property
    def unseen(self) -> str:
        """How to describe a level that has no code of its own."""
        return "not in training, or rare there" if self.note else "not in training"


class Columns:
    """How to read a table: numbers, dates as days, categories as the index of their level.

    In codes a missing value is NaN, and a level that was not in training, or too rare there, −1.

    Args:
        columns: in the order of the table.
    """

    def __init__(self, columns: list[Column]) -> None:
        self.columns = columns

    def __repr__(self) -> str:
        return f"Columns({self.columns!r})"

    @property
    def used(self) -> list[Column]:
        """The columns that have codes."""
        return [column for column in self.columns if column.kind != "ignored"]

    @property
    def num_levels(self) -> list[int]:
        """The number of levels of each used column; 0 for numbers."""
        return [len(column.levels) for column in self.used]

    @classmethod
    def of(cls, table: Any, weight: NDArray[Any] | None = None) -> Columns:
        """Infer what the columns of a frame hold; those of an array are numbers.

        Args:
            table: frame or array.
            weight: how often each row counts; rows of weight zero are disregarded.
        """
        if isinstance(table, np.ndarray):
            return cls([Column(str(at), "number") for at in range(table.shape[1])])
        frame = nw.from_native(table, eager_only=True)
        if not len(frame):
            raise ValueError("Found array with 0 sample(s); the table has no rows")
        if weight is not None:
            frame, weight = frame.filter((weight > 0).tolist()), weight[weight > 0]
        counts = np.ones(len(frame)) if weight is None else weight
        columns = cls([_infer(str(name), frame[name], counts) for name in frame.columns])
        if not columns.used:
            reasons = [f"{column.name!r} is {column.note}" for column in columns.columns]
            why = "; ".join(reasons) or "it has no column besides the target"
            raise ValueError(f"the table has no column to learn from: {why}")
        return columns

    def codes(self, table: Any) -> Codes:
        """The values of a table with these columns, (num_rows, num_used).

        Columns of a frame are found by name; an array must have all of them, as numbers.
        """
        if isinstance(table, np.ndarray):
            return self._array_codes(table)
        frame = nw.from_native(table, eager_only=True)
        names = {str(name): name for name in frame.columns}
        absent = [column.name for column in self.used if column.name not in names]
        if absent:
            raise ValueError(
                f"the table lacks {', '.join(map(repr, absent))}, which the model was trained on; "
                f"it has {', '.join(map(repr, names))}"
            )
        codes = np.empty((len(frame), len(self.used)))
        for at, column in enumerate(self.used):
            codes[:, at] = _codes(column, frame[names[column.name]])
        return codes

    def _array_codes(self, array: NDArray[Any]) -> Codes:
        other = [column.name for column in self.used if column.kind != "number"]
        if other:
            raise ValueError(
                f"columns {', '.join(map(repr, other))} are not numbers, and an array holds "
                "numbers only; pass a frame, as in training"
            )
        used = [at for at, column in enumerate(self.columns) if column.kind != "ignored"]
        return np.asarray(array, float)[:, used]

    def new_levels(self, frame: Any) -> dict[str, list[str]]:
        """For each category, the levels in a frame that have no code of their own, sorted."""
        frame = nw.from_native(frame, eager_only=True)
        new_levels = {}
        for column in self.used:
            if column.kind == "category":
                texts = {text for text in as_texts(frame[column.name]) if text is not None}
                if new := sorted(texts - set(column.levels)):
                    new_levels[column.name] = new
        return new_levels

    def to_json(self) -> list[dict[str, Any]]:
        """The columns as values that JSON can hold."""
        return [asdict(column) | {"levels": list(column.levels)} for column in self.columns]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> Columns:
        """The columns that `to_json` described."""
        return cls([Column(**entry | {"levels": tuple(entry["levels"])}) for entry in columns])


def _infer(name: str, values: nw.Series[Any], weight: NDArray[Any]) -> Column:
    """The kind of a column, from its values."""
    if values.null_count() == len(values):
        return Column(name, "ignored", note="empty")
    values = with_dates(values)
    if values.dtype.is_temporal():
        kind, numbers = "date", as_days(values)
    else:
        kind, numbers = "number", as_numbers(values)
    if numbers is None:
        texts = as_texts(values)
        column = _infer_category(name, texts, weight)
        if column.note and (why := _almost_numbers(texts)):
            warnings.warn(f"column {name!r} is read as text: {why}", AlmostNumbers, stacklevel=2)
            return replace(column, note=f"{column.note}; {why}")
        return column
    known = numbers[~np.isnan(numbers)]
    if known.size == 0:
        return Column(name, "ignored", note="empty")
    _check_finite(name, known)
    if known.min() == known.max():
        return Column(name, "ignored", note="always the same")
    return Column(name, kind)


def _infer_category(name: str, texts: list[str | None], weight: NDArray[Any]) -> Column:
    """A category, or an ignored column, from texts, None where a value is missing."""
    weights = defaultdict(list)
    for text, count in zip(texts, weight.tolist(), strict=True):
        if text is not None:
            weights[text].append(count)
    totals = {text: math.fsum(counts) for text, counts in weights.items()}
    levels = sorted(totals, key=lambda text: (-totals[text], text))
    # weights of two or more are repetitions; below that, rows are what can be counted
    repeated = [text for text in levels if len(weights[text]) > 1 or totals[text] >= 2]
    if len(levels) == 1:
        return Column(name, "ignored", note="always the same")
    single = math.fsum(totals.values()) - math.fsum(totals[text] for text in repeated)
    hardly = len(levels) > FEW_LEVELS and 2 * single > math.fsum(totals.values())
    if hardly or (len(repeated) < 2 and len(levels) > 5):
        return Column(name, "ignored", note=f"text, {len(levels)} different values")
    frequent = sum(totals[text] >= ROWS_OF_A_LEVEL for text in levels[:MAX_LEVELS])
    kept = tuple(levels[: max(FEW_LEVELS, frequent)])
    if len(kept) == len(levels):
        return Column(name, "category", kept)
    note = f"{len(levels)} different values; the {len(kept)} most frequent have their own level"
    return Column(name, "category", kept, note)


def _almost_numbers(texts: list[str | None]) -> str:
    """The first value that is in the way of numbers; empty if most are no numbers."""
    known = [(row, text) for row, text in enumerate(texts) if text is not None]
    others = [(row, text) for row, text in known if not _is_number(text)]
    if 2 * len(others) >= len(known):
        return ""
    count = f"{len(known) - len(others):,} of {len(known):,} values are numbers"
    if not others:
        return f"{count} written as text; convert them"
    row, text = others[0]
    return f"{count}; row {row + 1:,} has {text[:40]!r}, correct it and convert the column"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _codes(column: Column, values: nw.Series[Any]) -> Codes:
    """The values of a column as numbers, (num_rows,)."""
    if column.kind == "category":
        index = {text: float(at) for at, text in enumerate(column.levels)}
        codes = (np.nan if text is None else index.get(text, -1.0) for text in as_texts(values))
        return np.fromiter(codes, float, len(values))
    if values.null_count() == len(values):
        return np.full(len(values), np.nan)
    values = with_dates(values)
    numbers = as_days(values) if column.kind == "date" else as_numbers(values)
    if numbers is None:
        example = next(text for text in as_texts(values) if text is not None)
        raise ValueError(
            f"column {column.name!r} must hold {column.kind}s, as in training, got "
            f"{values.dtype!s} such as {example!r}"
        )
    _check_finite(column.name, numbers)
    return numbers


def _check_finite(name: str, numbers: NDArray[np.float64]) -> None:
    if np.isinf(numbers).any():
        raise ValueError(f"column {name!r} holds infinity; replace it by a missing value")
