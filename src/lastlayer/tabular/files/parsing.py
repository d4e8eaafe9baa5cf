"""Texts of a CSV file as missing values, numbers, booleans or dates."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MISSING = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None", "?", "-"]
THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?$"


def infer(texts: Any, decimal_comma: bool) -> Any:
    """A column as numbers, booleans or dates if all its values are, else as it is."""
    if texts.null_count == len(texts):
        return texts
    values = _numbers(texts, decimal_comma)
    if values is None:
        values = _booleans(texts)
    if values is None:
        values = _dates(texts)
    return texts if values is None else values


def convert(texts: Any, kind: str, decimal_comma: bool) -> Any:
    """Texts as values of a kind, or None if some are not; booleans are numbers as well."""
    if kind == "number":
        values = _numbers(texts, decimal_comma)
        booleans = _booleans(texts) if values is None else None
        return values if booleans is None else booleans.cast(pa.float64())
    if kind == "boolean":
        return _booleans(texts)
    return _dates(texts) if kind == "date" else texts


def trim(texts: Any) -> Any:
    """Texts without surrounding white space, null where they stand for a missing value."""
    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.is_in(texts, pa.array(MISSING)), pa.scalar(None, pa.string()), texts)


def ambiguous_comma(texts: Any) -> tuple[str, str] | None:
    """A number with a comma and one without, if every comma may separate thousands."""
    known = pc.drop_null(texts)
    with_comma = pc.match_substring(known, ",")
    some, others = known.filter(with_comma), known.filter(pc.invert(with_comma))
    if not len(some) or not len(others) or _cast(others, pa.float64()) is None:
        return None
    thousands = pc.all(pc.match_substring_regex(some, THOUSANDS)).as_py()
    return (some[0].as_py(), others[0].as_py()) if thousands else None


def _numbers(texts: Any, decimal_comma: bool) -> Any:
    """Texts as numbers, with 1,5 as one and a half or else commas between thousands, or None."""
    values = _cast(texts, pa.float64())
    if values is not None:
        return values
    if decimal_comma:
        return _cast(pc.replace_substring(texts, ",", "."), pa.float64())
    grouped = pc.match_substring_regex(texts, THOUSANDS)
    return _cast(pc.if_else(grouped, pc.replace_substring(texts, ",", ""), texts), pa.float64())


def _booleans(texts: Any) -> Any:
    lower = pc.utf8_lower(texts)
    words = set(pc.unique(lower).to_pylist()) - {None}
    return pc.equal(lower, "true") if words <= {"true", "false"} else None


def _dates(texts: Any) -> Any:
    """Texts as moments, those with a time zone in UTC, or None."""
    values = _cast(texts, pa.timestamp("us"))
    if values is None:
        values = _cast(texts, pa.timestamp("us", "UTC"))
    return values if values is None else values.cast(pa.timestamp("us"))


def _cast(texts: Any, kind: pa.DataType) -> Any:
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        return None
