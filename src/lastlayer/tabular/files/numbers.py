"""Numbers as people write them: with units, currencies, percent signs and marks of thousands."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

CURRENCIES = (
    r"US\$|R\$|[$€£¥₹₩₽₺₴]|USD|EUR|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|BRL|AUD|CAD|Fr\.|Rs\.?"
)
WRITTEN = (
    r"^(?P<bracket>\(?)(?P<sign>[+-]?)\s*"
    rf"(?P<prefix>(?:{CURRENCIES})?)\s*(?P<inner>[+-]?)\s*"
    r"(?P<digits>\d[\d., ']*|[.,]\d+)(?P<exponent>(?:[eE][+-]?\d+)?)\s*"
    r"(?P<suffix>(?:[^\d\s.,()'+-][^\d()]*?[23]?)?)\s*(?P<trailing>-?)\)?$"
)
SPACES, MINUS, APOSTROPHE = "[\u00a0\u2007\u2009\u202f]", "\u2212", "\u2019"
PERCENT = "%"  # a number without it may be a share instead


class Marks(NamedTuple):
    """The marks within a number; no decimal mark stands for marks that are not known yet."""

    decimal: str
    thousands: str


PLAIN = Marks(".", "")
MARKS = (
    PLAIN,
    Marks(",", ""),
    Marks(".", ","),
    Marks(",", "."),
    Marks(".", " "),
    Marks(",", " "),
    Marks(".", "'"),
    Marks(",", "'"),
)


class Numbers:
    """Texts taken apart into signs, digits and units.

    Args:
        texts: without surrounding white space, null for missing values, (num_rows,).
    """

    def __init__(self, texts: Any) -> None:
        texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        for pattern, mark in ((SPACES, " "), (MINUS, "-"), (APOSTROPHE, "'")):
            texts = pc.replace_substring_regex(texts, pattern, mark)
        parts = pc.extract_regex(texts, WRITTEN)
        self._digits = pc.utf8_rtrim_whitespace(pc.struct_field(parts, "digits"))
        self._exponent = pc.struct_field(parts, "exponent")
        signs = [pc.struct_field(parts, name) for name in ("sign", "inner", "trailing", "bracket")]
        negative = pc.is_in(
            pc.binary_join_element_wise(*signs, ""), pa.array(["-", "("])
        )  # two signs are no number
        signed = pc.is_in(pc.binary_join_element_wise(*signs, ""), pa.array(["", "+", "-", "("]))
        self._sign = pc.if_else(negative, "-", "")
        self.units = pc.if_else(
            signed,
            pc.binary_join_element_wise(
                pc.struct_field(parts, "prefix"), pc.struct_field(parts, "suffix"), ""
            ),
            pa.scalar(None, pa.string()),
        )  # null where there is no number

    def unit(self) -> str:
        """The unit of most numbers that have one; none if most numbers lack a percent sign."""
        counts = Counter(self.units.drop_null().to_pylist())
        bare = counts.pop("", 0)
        if not counts:
            return ""
        unit, count = counts.most_common(1)[0]
        return "" if unit == PERCENT and bare > count else unit

    def values(self, marks: Marks, unit: str) -> Any:
        """The numbers with these marks and this unit, null where a text is none."""
        same = pc.equal(self.units, unit)
        if unit != PERCENT:
            same = pc.or_(same, pc.equal(self.units, ""))
        fits = pc.and_(pc.match_substring_regex(self._digits, _pattern(marks)), same)
        digits = self._digits
        if marks.thousands:
            digits = pc.replace_substring(digits, marks.thousands, "")
        if marks.decimal == ",":
            digits = pc.replace_substring(digits, ",", ".")
        texts = pc.binary_join_element_wise(self._sign, digits, self._exponent, "")
        return pc.cast(pc.if_else(fits, texts, pa.scalar(None, pa.string())), pa.float64())

    def best(self, candidates: tuple[Marks, ...], unit: str) -> list[tuple[Marks, Any]]:
        """The marks that most texts fit, in their order, and the numbers by them."""
        read = [(marks, self.values(marks, unit)) for marks in candidates]
        fewest = min(values.null_count for _, values in read)
        return [(marks, values) for marks, values in read if values.null_count == fewest]

    def in_thousands(self, mark: str) -> bool:
        """Whether every number with this mark could have it between thousands, and some lack it."""
        marked = pc.match_substring(self._digits, mark)
        grouped = pc.match_substring_regex(self._digits, _grouped(mark) + "$")
        return bool(pc.all(pc.if_else(marked, grouped, True)).as_py()) and not bool(
            pc.all(marked).as_py()
        )


def _grouped(mark: str) -> str:
    """A pattern of digits in groups; India's second group has two."""
    mark = f"[{mark}]"
    lakh = r"\d{2,3}" if mark == "[,]" else r"\d{3}"
    return rf"^[1-9]\d{{0,2}}({mark}{lakh})*{mark}\d{{3}}"


def _pattern(marks: Marks) -> str:
    decimals = rf"([{marks.decimal}]\d*)?$"
    patterns = [rf"^\d+{decimals}", rf"^[{marks.decimal}]\d+$"]
    if marks.thousands:
        patterns.append(_grouped(marks.thousands) + decimals)
    return "|".join(patterns)
