"""The columns of a table: what kind each is, and their values as codes."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.float64]

MOST_LEVELS = 32  # of a category; rarer ones are one with those that are new
DAY = np.timedelta64(1, "D")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: in the frame; a number if the table is an array.
        kind: "number", "date", "category" or "ignored".
        levels: of a category, as text, the most frequent first.
        note: what a user should know about how the column is read; may be empty.
    """

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    note: str = ""

    @property
    def unseen(self) -> str:
        """Where a level is that is none of these."""
        return "not in training, or rare there" if self.note else "not in training"


class Columns:
    """How to read a table: numbers, dates as days, categories as the number of their level.

    In codes a missing value is NaN, and a level that was not there, or too rare, −1.

    Args:
        columns: in the order of the table.
    """

    def __init__(self, columns: list[Column]) -> None:
        self.columns = columns

    def __repr__(self) -> str:
        return f"Columns({self.columns!r})"

    @property
    def used(self) -> list[Column]:
        """Those that have codes."""
        return [column for column in self.columns if column.kind != "ignored"]

    @property
    def num_levels(self) -> list[int]:
        """For each of the codes, how many levels there are; 0 for numbers."""
        return [len(column.levels) for column in self.used]

    @classmethod
    def of(cls, table: Any, weight: NDArray[Any] | None = None) -> Columns:
        """Find out what the columns of a frame hold; those of an array are numbers.

        Args:
            table: frame or array.
            weight: how often each row counts; rows of weight zero are not there.
        """
        if isinstance(table, np.ndarray):
            return cls([Column(str(at), "number") for at in range(table.shape[1])])
        frame = nw.from_native(table, eager_only=True)
        if not len(frame):
            raise ValueError("Found array with 0 sample(s); the table has no rows")
        if weight is not None:
            frame, weight = frame.filter((weight > 0).tolist()), weight[weight > 0]
        counts = np.ones(len(frame)) if weight is None else weight
        found = cls([_column(str(name), frame[name], counts) for name in frame.columns])
        if not found.used:
            reasons = [f"{column.name!r} is {column.note}" for column in found.columns]
            why = "; ".join(reasons) or "there is none but the target"
            raise ValueError(f"the table has no column to learn from: {why}")
        return found

    def codes(self, table: Any) -> Codes:
        """The values of a table with these columns, (num_rows, num_used).

        Those of a frame are found by their names; an array must have all of them, as numbers.
        """
        if isinstance(table, np.ndarray):
            return self._array_codes(table)
        frame = nw.from_native(table, eager_only=True)
        names = {str(name): name for name in frame.columns}
        lacking = [column.name for column in self.used if column.name not in names]
        if lacking:
            raise ValueError(
                f"the table lacks {', '.join(map(repr, lacking))}, which the model was trained on; "
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
                f"columns {', '.join(map(repr, other))} are not numbers, so that an array cannot "
                "hold them; pass a frame, as in training"
            )
        used = [at for at, column in enumerate(self.columns) if column.kind != "ignored"]
        return np.asarray(array, float)[:, used]

    def new_levels(self, frame: Any) -> dict[str, list[str]]:
        """For each category, levels in a frame that are not among its own, sorted."""
        frame = nw.from_native(frame, eager_only=True)
        found = {}
        for column in self.used:
            if column.kind == "category":
                texts = {text for text in _texts(frame[column.name]) if text is not None}
                if new := sorted(texts - set(column.levels)):
                    found[column.name] = new
        return found

    def to_json(self) -> list[dict[str, Any]]:
        """For a file."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> Columns:
        """From `to_json`."""
        return cls([Column(**one | {"levels": tuple(one["levels"])}) for one in columns])


def _column(name: str, values: nw.Series[Any], weight: NDArray[Any]) -> Column:
    """What a column holds."""
    if values.null_count() == len(values):
        return Column(name, "ignored", note="empty")
    values = dated(values)
    if values.dtype.is_temporal():
        kind, numbers = "date", _dates(values)
    else:
        kind, numbers = "number", _numbers(values)
    if numbers is not None:
        known = numbers[~np.isnan(numbers)]
        if known.size == 0:
            return Column(name, "ignored", note="empty")
        _check_finite(name, known)
        if known.min() == known.max():
            return Column(name, "ignored", note="always the same")
        return Column(name, kind)
    return _category(name, _texts(values), weight)


def _category(name: str, texts: list[str | None], weight: NDArray[Any]) -> Column:
    """A column of texts, None where they are missing."""
    weights = defaultdict(list)
    for text, one in zip(texts, weight.tolist(), strict=True):
        if text is not None:
            weights[text].append(one)
    totals = {text: math.fsum(each) for text, each in weights.items()}
    counts = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    # weights of two or more are repetitions; below that, rows are what can be counted
    repeated = [text for text, count in counts if len(weights[text]) > 1 or count >= 2]
    if len(counts) == 1:
        return Column(name, "ignored", note="always the same")
    if len(repeated) < 2 and len(counts) > 5:
        return Column(name, "ignored", note=f"text, {len(counts)} different values")
    if len(counts) <= MOST_LEVELS:
        return Column(name, "category", tuple(text for text, _ in counts))
    note = (
        f"{len(counts)} different values, of which the {MOST_LEVELS} most frequent are told apart"
    )
    return Column(name, "category", tuple(text for text, _ in counts[:MOST_LEVELS]), note)


def _codes(column: Column, values: nw.Series[Any]) -> NDArray[np.float64]:
    """The values of a column as numbers, (num_rows,)."""
    if column.kind == "category":
        codes = {text: float(at) for at, text in enumerate(column.levels)}
        found = (np.nan if text is None else codes.get(text, -1.0) for text in _texts(values))
        return np.fromiter(found, float, len(values))
    if values.null_count() == len(values):
        return np.full(len(values), np.nan)
    values = dated(values)
    numbers = _dates(values) if column.kind == "date" else _numbers(values)
    if numbers is None:
        what = "dates" if column.kind == "date" else "numbers"
        example = next(text for text in _texts(values) if text is not None)
        raise ValueError(
            f"column {column.name!r} must hold {what}, as in training, got {values.dtype!s} "
            f"such as {example!r}"
        )
    _check_finite(column.name, numbers)
    return numbers


def _check_finite(name: str, numbers: NDArray[np.float64]) -> None:
    if np.isinf(numbers).any():
        raise ValueError(f"column {name!r} holds infinity; replace it by a missing value")


def _numbers(values: nw.Series[Any]) -> NDArray[np.float64] | None:
    """As float64 with NaN for what is missing, or None if some are not numbers."""
    if values.dtype in (nw.Int64, nw.UInt64):  # which arrow casts only where nothing is rounded
        return np.asarray(values.to_numpy(), float)
    if values.dtype.is_numeric() or values.dtype == nw.Boolean:
        return np.asarray(values.cast(nw.Float64).to_numpy(), float)
    if values.dtype == nw.Object:
        try:
            numbers = np.array([np.nan if missing(v) else v for v in values.to_list()], float)
        except (TypeError, ValueError):
            return None
        return numbers if numbers.ndim == 1 else None  # not of arrays that are equally long
    if values.dtype == nw.Unknown:  # as sparse columns of pandas are
        dense = values.to_numpy()
        return dense.astype(float) if dense.dtype.kind in "biuf" else None
    return None


def dated(values: nw.Series[Any]) -> nw.Series[Any]:
    """As a column of dates if all are Python's objects of that sort, or periods of pandas."""
    if values.dtype not in (nw.Object, nw.Unknown):
        return values
    moments: list[dt.datetime | None] = []
    for value in values.to_list():
        if missing(value):
            moments.append(None)
        elif (moment := _moment(value)) is not None:
            moments.append(moment)
        else:
            return values
    return nw.new_series(values.name, moments, nw.Datetime("us"), backend=values.implementation)


def _moment(value: Any) -> dt.datetime | None:
    """Of a date, or the beginning of a period, in the zone of Greenwich if there is one."""
    if hasattr(value, "to_timestamp"):
        value = value.to_timestamp()
    if not isinstance(value, dt.date):
        return None
    if not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    return value.astimezone(dt.timezone.utc).replace(tzinfo=None) if value.tzinfo else value


def _dates(values: nw.Series[Any]) -> NDArray[np.float64] | None:
    """As days since 1970, with NaN for what is missing, or None if they are not dates."""
    if values.dtype == nw.Duration:
        return np.asarray(values.to_numpy(), "timedelta64[us]") / DAY
    if values.dtype == nw.Time:
        seconds = [
            np.nan if v is None else v.hour * 3600 + v.minute * 60 + v.second for v in values
        ]
        return np.array(seconds) / 86_400
    if not values.dtype.is_temporal():
        return None
    if values.dtype != nw.Date and getattr(values.dtype, "time_zone", None):
        values = values.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    moments = np.asarray(values.to_numpy(), "datetime64[us]")
    days = (moments - np.datetime64(0, "us")) / DAY
    return np.where(np.isnat(moments), np.nan, days)


def _texts(values: nw.Series[Any]) -> list[str | None]:
    """As text, None for what is missing."""
    return [None if missing(value) else as_text(value) for value in values.to_list()]


def missing(value: Any) -> bool:
    """Whether it is None, NaN or the NA of pandas, which is neither equal to itself nor not."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True
    except ValueError:  # an array, which has no truth value
        return False


def counting_order(texts: list[str]) -> list[int]:
    """Places of texts as one would list them: as numbers if all are, so that 2 is before 10."""
    try:
        keys: list[Any] = [float(text) for text in texts]
    except ValueError:
        keys = texts
    return sorted(range(len(texts)), key=keys.__getitem__)


def as_text(value: Any) -> str:
    """The same for 1 and 1.0, which integers become beside missing values."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
