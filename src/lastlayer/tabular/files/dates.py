"""Dates as people write them, by patterns of `strptime`."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ISO = "ISO"  # 2020-12-31, with or without a time and a time zone
SAMPLE = 200  # values, most of which must fit a pattern before all are read by it
DAYS = (
    *("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y"),
    *("%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d-%b-%Y", "%d-%b-%y"),
    *("%d %b %Y", "%d. %b %Y", "%b %d, %Y", "%b %d %Y"),
)
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
PIECES = {  # of patterns, as regular expressions
    "%d": r"(?P<day>\d{1,2})",
    "%m": r"\d{1,2}",
    "%b": "[A-Za-z]{3,9}",
    "%Y": r"\d{4}",
    "%y": r"\d{2}",
    "%H": r"\d{1,2}",
    "%I": r"\d{1,2}",
    "%M": r"\d{2}",
    "%S": r"\d{2}",
    "%p": "[AaPp][Mm]",
}
PATTERNS = [day + time for day in DAYS for time in TIMES]
WRITTEN_ISO = (
    r"^\d{4}-\d{2}-(?P<day>\d{2})"
    r"(?:[ T]\d{2}(?::\d{2}(?::\d{2}(?:\.\d{1,9})?)?)?(?:Z|[+-]\d{2}(?::?\d{2})?)?)?$"
)


def best(texts: Any) -> list[tuple[str, Any]]:
    """The patterns that most texts fit, and the moments by them, null where a text does not."""
    iso = as_moments(texts, ISO)
    if iso.null_count == texts.null_count:
        return [(ISO, iso)]
    sample = pc.drop_null(texts)[:SAMPLE]
    names = [name for name in PATTERNS if 2 * as_moments(sample, name).null_count < len(sample)]
    read = [(ISO, iso), *((name, as_moments(texts, name)) for name in names)]
    fewest = min(moments.null_count for _, moments in read)
    return [(name, moments) for name, moments in read if moments.null_count == fewest]


def as_moments(texts: Any, pattern: str) -> Any:
    """Texts as moments, those with a time zone in UTC, null where they do not fit the pattern."""
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    written = WRITTEN_ISO if pattern == ISO else _expression(pattern)
    day = pc.struct_field(pc.extract_regex(texts, written), "day")
    fitting = pc.if_else(pc.is_valid(day), texts, pa.scalar(None, pa.string()))
    begin = pc.utf8_slice_codeunits(fitting, 0, 10) if pattern == ISO else fitting
    pattern_of_begin = "%Y-%m-%d" if pattern == ISO else pattern
    moments = pc.strptime(begin, format=pattern_of_begin, unit="us", error_is_null=True)
    exists = pc.equal(pc.day(moments), pc.cast(day, pa.int64()))  # 31 February would be in March
    if pattern != ISO:
        return pc.if_else(exists, moments, pa.scalar(None, moments.type))
    fitting = pc.if_else(exists, fitting, pa.scalar(None, pa.string()))
    zoned = pc.match_substring_regex(fitting, r"[ T].*(Z|[+-]\d{2}(:?\d{2})?)$")
    aware = pc.cast(pc.if_else(zoned, fitting, None), pa.timestamp("us", "UTC"))
    naive = pc.cast(pc.if_else(zoned, None, fitting), pa.timestamp("us"))
    return pc.coalesce(naive, aware.cast(pa.timestamp("us")))


def day_first(pattern: str) -> bool | None:
    """Whether a date of numbers has the day before the month; None if it cannot be mistaken."""
    if not re.search(r"^%[dm][/-]%[dm]", pattern):
        return None
    return pattern.startswith("%d")


def in_words(pattern: str) -> str:
    """A pattern for readers, such as DD.MM.YYYY."""
    words = {"%d": "DD", "%m": "MM", "%b": "Mon", "%Y": "YYYY", "%y": "YY"}
    for piece, word in words.items():
        pattern = pattern.replace(piece, word)
    return pattern.partition(" %")[0]


def _expression(pattern: str) -> str:
    """The regular expression of what fits a pattern."""
    parts = re.split(r"(%[a-zA-Z])", pattern)
    return "^" + "".join(PIECES.get(part) or re.escape(part) for part in parts) + "$"
