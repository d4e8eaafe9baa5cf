"""What the columns of a table hold, in words."""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from ..columns import Column, dated, missing
from .reading import Array, Reading
from .wording import number, percent, plain

MOST_COLUMNS = 100  # that are listed
MOST_LEVELS = 4  # that are named


class Summary(NamedTuple):
    """Of a column."""

    name: str
    kind: str
    num_missing: int
    values: str
    note: str


def summarise(reading: Reading) -> list[Summary]:
    """Of each column of the model, the used ones first in the order of the table."""
    new = reading.columns.new_levels(reading.frame)
    used = {column.name: at for at, column in enumerate(reading.columns.used)}
    found = []
    for column in reading.columns.columns[:MOST_COLUMNS]:
        if column.name in used:
            codes = reading.codes[:, used[column.name]]
            note = [column.note] if column.note else []
            if column.name in new:
                note.append(f"{column.unseen}: {_listed(new[column.name])}")
            values = _values(column, codes, reading.frame[column.name])
            gaps = int(np.isnan(codes).sum())
            one = Summary(plain(column.name), column.kind, gaps, values, "; ".join(note))
        else:
            one = _ignored(column, reading.frame)
        found.append(one)
    return found


def summarise_target(reading: Reading) -> Summary:
    """Of the target."""
    gaps = int(np.isnan(reading.target).sum())
    note = f"not in training: {_listed(reading.new_classes)}" if reading.new_classes else ""
    column = Column(reading.target_name, "category", tuple(reading.classes))
    values = _frequent(column, reading.target) if reading.classes else _range(reading.target)
    kind = f"target, {'category' if reading.classes else 'number'}"
    return Summary(plain(reading.target_name), kind, gaps, values, note)


def unknown_columns(reading: Reading) -> list[str]:
    """Names in the table that the model has no use for."""
    known = {reading.target_name, *(column.name for column in reading.columns.columns)}
    return [plain(name) for name in reading.frame.columns if name not in known]


def is_calendar(values: nw.Series[Any]) -> bool:
    """Whether a column of dates holds days of the calendar, not times of day or durations."""
    kind = dated(values).dtype
    return kind == nw.Date or isinstance(kind, nw.Datetime)


def date(days: float) -> str:
    """A day of the calendar from the days since 1970."""
    return str(np.datetime64(0, "D") + np.timedelta64(int(np.floor(days)), "D"))


def _ignored(column: Column, frame: nw.DataFrame[Any]) -> Summary:
    if column.name not in frame.columns:
        note = f"{column.note}; not in this table"
        return Summary(plain(column.name), "ignored", 0, "", note)
    gaps = sum(missing(value) for value in frame[column.name].to_list())
    return Summary(plain(column.name), "ignored", gaps, "", column.note)


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
    """From where to where numbers go."""
    known = codes[~np.isnan(codes)]
    if not len(known):
        return "none"
    lowest, middle, highest = (number(float(np.quantile(known, at))) for at in (0, 0.5, 1))
    if lowest == highest:
        return f"always {lowest}"
    return f"{lowest} to {highest}, half below {middle}"


def _frequent(column: Column, codes: Array) -> str:
    """The most frequent levels and their shares."""
    levels, counts = np.unique(codes[~np.isnan(codes)], return_counts=True)
    if not len(levels):
        return "none"
    order = np.argsort(-counts, kind="stable")
    texts = [
        f"{level_name(column, levels[at])}: {percent(counts[at] / counts.sum())}"
        for at in order[:MOST_LEVELS]
    ]
    more = len(order) - MOST_LEVELS
    return ", ".join([*texts, f"{more} more"] if more > 0 else texts)


def level_name(column: Column, code: float) -> str:
    """Of a category."""
    if np.isnan(code):
        return "(missing)"
    return "(other)" if code < 0 else plain(column.levels[int(code)])


def _listed(names: list[str]) -> str:
    """Some names, and how many more there are."""
    texts = [plain(name) for name in names[:MOST_LEVELS]]
    more = len(names) - MOST_LEVELS
    return ", ".join([*texts, f"{more} more"] if more > 0 else texts)
