"""Values of a column as numbers, days or text, whatever library holds them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

DAY = np.timedelta64(1, "D")
MAX_LENGTH = 40  # of a value in messages


def as_numbers(values: nw.Series[Any]) -> NDArray[np.float64] | None:
    """Values as float64 with NaN for missing ones; None if some are not numbers."""
    if values.dtype in (nw.Int64, nw.UInt64):  # which arrow casts only where nothing is rounded
        return np.asarray(values.to_numpy(), float)
    if values.dtype.is_numeric() or values.dtype == nw.Boolean:
        return np.asarray(values.cast(nw.Float64).to_numpy(), float)
    if values.dtype == nw.Object:
        try:
            numbers = np.array([np.nan if is_missing(v) else v for v in values.to_list()], float)
        except (TypeError, ValueError, OverflowError):
            return None
        return numbers if numbers.ndim == 1 else None  # not from arrays of equal length
    if values.dtype == nw.Unknown:  # as sparse columns of pandas are
        dense = values.to_numpy()
        return dense.astype(float) if dense.dtype.kind in "biuf" else None
    return None


def as_days(values: nw.Series[Any]) -> NDArray[np.float64] | None:
    """Dates as days since 1970 with NaN for missing ones; None if some are not dates.

    Durations become days, and times of day the fraction of the day that has passed.
    """
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


def as_texts(values: nw.Series[Any]) -> list[str | None]:
    """Values as text, None for missing ones."""
    return [None if is_missing(value) else as_text(value) for value in values.to_list()]


def as_text(value: Any) -> str:
    """A value as text, the same for 1 and 1.0, which integers become beside missing values."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def with_dates(values: nw.Series[Any]) -> nw.Series[Any]:
    """The column with a date type, if all its objects are Python's dates or periods of pandas."""
    if values.dtype not in (nw.Object, nw.Unknown):
        return values
    moments: list[dt.datetime | None] = []
    for value in values.to_list():
        if is_missing(value):
            moments.append(None)
        elif (moment := _moment(value)) is not None:
            moments.append(moment)
        else:
            return values
    return nw.new_series(values.name, moments, nw.Datetime("us"), backend=values.implementation)


def _moment(value: Any) -> dt.datetime | None:
    """A date, or the beginning of a period, as a moment in UTC; None for anything else."""
    if hasattr(value, "to_timestamp"):
        value = value.to_timestamp()
    if not isinstance(value, dt.date):
        return None
    if not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    return value.astimezone(dt.timezone.utc).replace(tzinfo=None) if value.tzinfo else value


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or the NA of pandas, whose comparison has no truth value."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True
    except ValueError:  # an array, which has no truth value
        return False


def natural_order(texts: list[str]) -> list[int]:
    """Positions of texts in sorted order, as numbers if all are, so that 2 is before 10."""
    try:
        keys: list[Any] = [float(text) for text in texts]
    except ValueError:
        keys = texts
    return sorted(range(len(texts)), key=keys.__getitem__)


def cut(text: str) -> str:
    """A value for a message, not too long."""
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"
