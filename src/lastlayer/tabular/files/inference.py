"""What the columns of a CSV file hold, and which values are in the way."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from .dates import day_first, in_words
from .errors import FileError
from .numbers import Numbers
from .parsing import Format, Parsed, is_rare, may_be_levels, parse, without_absent

MAX_LISTED = 3  # values that are in the way
TOTAL = r"(?i)^(grand |sub)?(total|totals|sum|summe|gesamt|insgesamt|mean|average|mittelwert):?$"


class Notice(NamedTuple):
    """What a user should know about a column before training."""

    column: str
    text: str
    lost: bool = False  # whether a column of numbers or dates is read as text


class Contents(NamedTuple):
    """The rows of a file, and how they were read."""

    rows: pa.Table
    formats: dict[str, Format]
    notices: list[Notice]


class Findings:
    """What was noticed while the parts of a file were read.

    Attributes:
        unread: rows whose values do not fit the format of their column, with them, by column.
        notices: of rows that were left out.
    """

    def __init__(self) -> None:
        self.unread: dict[str, list[tuple[int, str]]] = {}
        self.notices: list[Notice] = []


def infer(table: pa.Table, separator: str, month_first: bool | None = None) -> Contents:
    """Infer what columns of text hold.

    Args:
        table: texts, null for missing values.
        separator: between the values of the file; where it is a comma, 1,234 is in thousands.
        month_first: how to read 01/02/2020; None if unknown.
    """
    table, notices = without_total(table)
    texts = dict(zip(table.column_names, table.columns, strict=True))
    parsed = {name: parse(column) for name, column in texts.items()}
    decimal = "." if separator == "," else ""
    decimals = {_decimal(texts[name], column) for name, column in parsed.items()} - {""}
    if len(decimals) == 1:
        decimal = decimals.pop()
    columns, formats = {}, {}
    for name, column in parsed.items():
        form, values = _resolve(name, texts[name], column, decimal, month_first)
        notice, form, values = _tolerate(name, texts[name], form, values)
        notices += [notice] if notice else []
        columns[name], formats[name] = values, form
    return Contents(pa.table(columns), formats, notices)


def misfits(texts: Any, values: Any, start: int = 1) -> list[tuple[int, str]]:
    """Rows whose value does not fit the others, with the value.

    Args:
        texts: as they are written.
        values: null where a text does not fit.
        start: the number of the first row.
    """
    odd = _odd(texts, values)
    if not pc.any(odd).as_py():
        return []
    rows = pc.indices_nonzero(odd).to_pylist()
    return [(start + row, texts[row].as_py()) for row in rows]


def listed_rows(rows: list[tuple[int, str]]) -> str:
    """Rows with their values, for a message: the first few of them."""
    if len(rows) == 1:
        return f"row {rows[0][0]:,} has {rows[0][1][:40]!r}"
    texts = [f"row {row:,} has {text[:40]!r}" for row, text in rows[:MAX_LISTED]]
    more = len(rows) - MAX_LISTED
    return ", ".join(texts) + (f", and {more:,} more" if more > 0 else "")


def without_total(table: pa.Table, start: int = 1) -> tuple[pa.Table, list[Notice]]:
    """The table without a last row of totals; its first row has the number `start`."""
    last = table.num_rows - 1
    if last < 2:
        return table, []
    for name, column in zip(table.column_names, table.columns, strict=True):
        total = pc.match_substring_regex(column.slice(last), TOTAL)[0].as_py()
        if total and pc.sum(pc.equal(column, column[last])).as_py() == 1:
            text = f"the last row, {start + last:,}, has {column[last].as_py()!r}: it is left out"
            return table.slice(0, last), [Notice(name, text)]
    return table, []


def _decimal(texts: Any, column: Parsed) -> str:
    """The decimal mark of a column, if its numbers allow only one."""
    decimals = {form.decimal for form, _ in ((column.format, None), *column.alternatives)}
    if column.format.kind != "number" or len(decimals) > 1:
        return ""
    written = pc.any(pc.match_substring(texts, column.format.decimal)).as_py()
    return column.format.decimal if written else ""


def _resolve(
    name: str, texts: Any, column: Parsed, decimal: str, month_first: bool | None
) -> tuple[Format, Any]:
    """The format of a column that fits several, by what is known of the file."""
    first = (column.format, column.values)
    others = [entry for entry in column.alternatives if not entry[1].equals(column.values)]
    if not others:
        return first
    if column.format.kind == "date":
        orders = {day_first(form.pattern): (form, values) for form, values in (first, *others)}
        if month_first is None or (not month_first) not in orders:
            example = pc.drop_null(texts)[0].as_py()
            written = " or ".join(in_words(form.pattern) for form, _ in orders.values())
            raise FileError(
                f"column {name!r} has dates such as {example!r}, which may be {written}; "
                "give --day-first or --month-first"
            )
        return orders[not month_first]
    if decimal:
        return next((entry for entry in (first, *others) if entry[0].decimal == decimal), first)
    mark = column.format.decimal
    known = pc.drop_null(texts)
    if Numbers(known).in_thousands(mark):
        marked = pc.match_substring(known, mark)
        pair = (known.filter(marked)[0].as_py(), known.filter(pc.invert(marked))[0].as_py())
        kind = {".": "point", ",": "comma"}[mark]
        raise FileError(
            f"column {name!r} has {pair[0]!r} beside {pair[1]!r}; write thousands without a "
            f"{kind}, and decimals with a point"
        )
    return first


def _tolerate(
    name: str, texts: Any, form: Format, values: Any
) -> tuple[Notice | None, Format, Any]:
    """A column with few values that do not fit as missing ones, with many as text."""
    if form.kind not in ("number", "date"):
        return None, form, values
    rows = misfits(texts, values)
    if not rows:
        return None, form, values
    odd = _odd(texts, values)
    levels = may_be_levels(texts, odd)
    fitting = len(values) - values.null_count
    known = fitting + len(rows)
    unit = f" in {form.unit}" if form.unit else ""
    written = f" written as {in_words(form.pattern)}" if form.pattern else ""
    count = f"{fitting:,} of {known:,} values are {form.kind}s{unit}{written}"
    them, are = ("it", "is") if len(rows) == 1 else ("them", "are")
    if is_rare(len(rows), known) and not levels:
        text = f"{count}; {listed_rows(rows)}, which {are} taken as missing: correct {them}"
        return Notice(name, text), form, values
    text = f"{count}; {listed_rows(rows)}: correct {them} or leave {them} empty, until then the "
    notice = None if levels else Notice(name, f"{text}column is read as text", lost=True)
    return notice, Format("text"), texts


def _odd(texts: Any, values: Any) -> Any:
    """Whether a text is neither missing nor has a value."""
    return pc.and_(pc.is_valid(without_absent(texts)), pc.is_null(values))
