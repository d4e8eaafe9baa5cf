"""Summary statistics of the columns of a table, as text."""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from ..columns import Column
from ..predictions import Array
from ..reading import Reading
from ..values import is_missing, with_dates
from .wording import number, percent, plain

MAX_COLUMNS = 100  # listed
MAX_LEVELS = 4  # listed of a category


class Summary(NamedTuple):
    """Summary statistics of one column."""

    name: str
    kind: str
    num_missing: int
    values: str
    note: str


def summarise(reading: Reading) -> list[Summary]:
    """Summaries of the columns of the model, in the order of training."""
    new_levels = reading.columns.new_levels(reading.frame)
    used = {column.name: at for at, column in enumerate(reading.columns.used)}
    summaries = []
    for column in reading.columns.columns[:MAX_COLUMNS]:
        if column.name in used:
            codes = reading.codes[:, used[column.name]]
            notes = [column.note] if column.note else []
            if column.name in new_levels:
                notes.append(f"{column.unseen}: {_listed(new_levels[column.name])}")
            values = _values(column, codes, reading.frame[column.name])
            missing = int(np.isnan(codes).sum())
            summary = Summary(plain(column.name), column.kind, missing, values, "; ".join(notes))
        else:
            summary = _ignored(column, reading.frame)
        summaries.append(summary)
    return summaries


def summarise_target(reading: Reading) -> Summary:
    """Summary statistics of the target."""
    missing = int(np.isnan(reading.target).sum())
    note = f"not in training: {_listed(reading.new_classes)}" if reading.new_classes else ""
    column = Column(str(reading.target_name), "category", tuple(reading.classes))
    values = _frequent(column, reading.target) if reading.classes else _range(reading.target)
    kind = f"target, {'category' if reading.classes else 'number'}"
    return Summary(plain(reading.target_name), kind, missing, values, note)


def unknown_columns(reading: Reading) -> list[str]:
    """Names of columns in the table that were not in training."""
    known = {reading.target_name, *(column.name for column in reading.columns.columns)}
    return [plain(name) for name in reading.frame.columns if name not in known]


def is_calendar(values: nw.Series[Any]) -> bool:
    """Whether a column of dates holds calendar dates, not times of day or durations."""
    kind = with_dates(values).dtype
    return kind == nw.Date or isinstance(kind, nw.Datetime)


def date(days: float) -> str:
    """A calendar date from days since 1970."""
    return str(np.datetime64(0, "D") + np.timedelta64(int(np.floor(days)), "D"))


def _ignored(column: Column, frame: nw.DataFrame[Any]) -> Summary:
    if column.name not in frame.columns:
        note = f"{column.note}; not in this table"
        return Summary(plain(column.name), "ignored", 0, "", note)
    missing = sum(is_missing(value) for value in frame[column.name].to_list())
    return Summary(plain(column.name), "ignored", missing, "", column.note)


def _values(column: Column, codes: Array, values: nw.Series[Any]) -> str:
    if column.kind == "category":
        return _frequent(column, codes)
    if column.kind == "number":
        return _range(codes)
    known = codes[~np.isnan(codes)]
    if not len(known):
        return "none"
    if is_calendar(values):
        return f"{date(known.min())} to {date(known.max())}"
    return f"{number(known.min())} to {number(known.max())} days"


def _range(codes: Array) -> str:
    """Minimum, maximum and median of numbers."""
    known = codes[~np.isnan(codes)]
    if not len(known):
        return "none"
    lowest, middle, highest = (number(float(np.quantile(known, at))) for at in (0, 0.5, 1))
    if lowest == highest:
        return f"always {lowest}"
    return f"{lowest} to {highest}, median {middle}"


def _frequent(column: Column, codes: Array) -> str:
    """The most frequent levels and their frequencies."""
    levels, counts = np.unique(codes[~np.isnan(codes)], return_counts=True)
    if not len(levels):
        return "none"
    order = np.argsort(-counts, kind="stable")
    texts = [
        f"{level_name(column, levels[at])}: {percent(counts[at] / counts.sum())}"
        for at in order[:MAX_LEVELS]
    ]
    more = len(order) - MAX_LEVELS
    return ", ".join([*texts, f"{more} more"] if more > 0 else texts)


def level_name(column: Column, code: float) -> str:
    """The name of a category level by its code."""
    if np.isnan(code):
        return "(missing)"
    return "(other)" if code < 0 else plain(column.levels[int(code)])


def _listed(names: list[str]) -> str:
    """The first names, and the number of others."""
    texts = [plain(name) for name in names[:MAX_LEVELS]]
    more = len(names) - MAX_LEVELS
    return ", ".join([*texts, f"{more} more"] if more > 0 else texts)
