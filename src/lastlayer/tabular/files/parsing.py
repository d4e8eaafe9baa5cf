"""Texts of a CSV file as missing values, numbers, booleans or dates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from . import dates
from .numbers import MARKS, Marks, Numbers

MISSING = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None", "?", "-"]
# Missing among numbers and dates only, where they cannot be category levels.
ABSENT = (
    r"(?i)^(n\.?\s?a\.?|n\.\s?d\.|k\.\s?a\.|nil|none|missing|unknown|not available|not applicable|"
    r"tbd|#(value|ref|div/0|num|name|null)[!?]?|[.\x{2013}\x{2014}-]+)$"
)
TOLERATED = 0.05  # share of values among numbers or dates that are none and count as missing
MAX_LEVELS = 32  # different values, of which those that are no numbers may be category levels


@dataclass(frozen=True)
class Format:
    """How the values of a column of a CSV file are written.

    Attributes:
        kind: "number", "boolean", "date" or "text"; "category" is text too.
        decimal: decimal mark of numbers; empty if it is not known.
        thousands: mark between thousands; empty if there is none.
        unit: beside numbers, such as kg, $ or %; empty if there is none.
        pattern: of dates, as for `strptime`, or "ISO"; empty if it is not known.
    """

    kind: str
    decimal: str = ""
    thousands: str = ""
    unit: str = ""
    pattern: str = ""

    @property
    def marks(self) -> Marks:
        """The marks within numbers."""
        return Marks(self.decimal, self.thousands)


class Parsed(NamedTuple):
    """The values of a column, read in a format."""

    format: Format
    values: Any  # null where a text is missing or does not fit the format
    alternatives: tuple[tuple[Format, Any], ...] = ()  # which the texts fit as well


def parse(texts: Any) -> Parsed:
    """A column in the format that most of its values have; as text if few have one."""
    if texts.null_count == len(texts):
        return Parsed(Format("text"), texts)
    if (booleans := _booleans(texts)) is not None:
        return Parsed(Format("boolean"), booleans)
    present = without_absent(texts)
    if present.null_count == len(present):
        return Parsed(Format("text"), texts)
    known = len(present) - present.null_count
    fewest = known + 1
    found = Parsed(Format("text"), texts)
    for formats in (_number_formats, _date_formats):
        (form, values), *others = formats(present)
        lost = values.null_count - present.null_count
        if lost < min(fewest, known / 2 + 1e-9):
            fewest, found = lost, Parsed(form, values, tuple(others))
        if not fewest:
            break
    return found


def convert(texts: Any, form: Format, separator: str) -> Any:
    """Texts in a format, null where they are missing or do not fit; booleans are numbers too."""
    if form.kind not in ("number", "date", "boolean"):
        return texts
    texts = without_absent(texts)
    if form.kind == "boolean":
        return _booleans(texts, strict=False)
    if form.kind == "date":
        if form.pattern:
            moments = dates.as_moments(texts, form.pattern)
            if moments.null_count == texts.null_count:
                return moments
            iso = dates.as_moments(texts, dates.ISO)  # which cannot be mistaken
            return pc.coalesce(moments, iso)
        return dates.best(texts)[0][1]
    if form.decimal in ("", ".") and not form.unit and (plain := _cast(texts)) is not None:
        return plain
    booleans = _booleans(texts)
    if booleans is not None and texts.null_count < len(texts):
        return booleans.cast(pa.float64())
    numbers = Numbers(texts)
    return numbers.best(_candidates(form, texts, separator), form.unit)[0][1]


def trim(texts: Any) -> Any:
    """Texts without surrounding white space, null where they stand for a missing value."""
    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.is_in(texts, pa.array(MISSING)), pa.scalar(None, pa.string()), texts)


def without_absent(texts: Any) -> Any:
    """Texts of a column of numbers or dates, null also for words such as n.a. or missing."""
    absent = pc.match_substring_regex(texts, ABSENT)
    return pc.if_else(absent, pa.scalar(None, pa.string()), texts)


def is_rare(num_odd: int, num_known: int) -> bool:
    """Whether so few values do not fit the others that they count as missing."""
    return num_odd <= TOLERATED * num_known


def may_be_levels(texts: Any, odd: Any) -> bool:
    """Whether texts that do not fit the others may be category levels: some repeat."""
    words = texts.filter(odd)
    return len(pc.unique(texts)) <= MAX_LEVELS and len(pc.unique(words)) < len(words)


def _number_formats(texts: Any) -> list[tuple[Format, Any]]:
    """The formats of numbers that most texts have, and the numbers."""
    plain = _cast(texts)
    if plain is not None and not _has_point_between_thousands(texts):
        return [(Format("number", "."), plain)]
    numbers = Numbers(texts)
    unit = numbers.unit()
    return [
        (Format("number", marks.decimal, marks.thousands, unit), values)
        for marks, values in numbers.best(MARKS, unit)
    ]


def _date_formats(texts: Any) -> list[tuple[Format, Any]]:
    return [(Format("date", pattern=name), moments) for name, moments in dates.best(texts)]


def _candidates(form: Format, texts: Any, separator: str) -> tuple[Marks, ...]:
    """Marks to try for numbers, those of training first, then others with its decimal mark."""
    decimal = form.decimal or ("." if separator == "," else "")
    if not form.thousands and separator == "," and not _any(texts, ","):
        decimal = "."
    same = [marks for marks in MARKS if marks.decimal == decimal]
    first = [form.marks] if form.decimal and form.marks in same else []
    if form.thousands:
        same = [marks for marks in same if marks.thousands in ("", form.thousands)]
    others = [marks for marks in MARKS if marks.decimal != decimal]
    return tuple(dict.fromkeys([*first, *same, *others]))


def _has_point_between_thousands(texts: Any) -> bool:
    """Whether some numbers have a point, and each such point may separate thousands."""
    pointed = pc.drop_null(texts).filter(pc.match_substring(pc.drop_null(texts), "."))
    grouped = pc.match_substring_regex(pointed, r"^[+-]?[1-9]\d{0,2}\.\d{3}$")
    return len(pointed) > 0 and bool(pc.all(grouped).as_py())


def _any(texts: Any, mark: str) -> bool:
    return bool(pc.any(pc.match_substring(texts, mark)).as_py())


def _booleans(texts: Any, *, strict: bool = True) -> Any:
    """Texts as booleans; strictly, None if some are not, else null for those."""
    lower = pc.utf8_lower(texts)
    words = pa.array(["true", "false"])
    if strict and not set(pc.unique(lower).to_pylist()) <= {"true", "false", None}:
        return None
    return pc.if_else(pc.is_in(lower, words), pc.equal(lower, "true"), pa.scalar(None, pa.bool_()))


def _cast(texts: Any) -> Any:
    """Texts as numbers, or None if some are not."""
    try:
        return pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        return None
