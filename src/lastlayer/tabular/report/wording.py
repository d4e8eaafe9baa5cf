"""Numbers and names as text for readers."""

from __future__ import annotations

import math
import unicodedata

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NOTHING = "–"
# Unicode categories: control characters, surrogates, line and paragraph separators
INVISIBLE = {"Cc", "Cs", "Zl", "Zp"}


def number(value: float) -> str:
    """A number with three significant digits; integers below a million in full."""
    if math.isnan(value):
        return NOTHING
    sign = "−" if value < 0 else ""
    size = abs(value)
    if math.isinf(size):
        return f"{sign}∞"
    rounded, exponent = f"{size:.2e}".split("e")
    power = int(exponent)
    if size and not -4 <= power < 6:
        return f"{sign}{rounded}\u00a0×\u00a010{str(power).translate(SUPERSCRIPTS)}"
    decimals = 0 if size == int(size) else max(0, 2 - power)
    text = f"{size:,.{decimals}f}" if size >= 10_000 else f"{size:.{decimals}f}"
    return sign + text.replace(",", "\u202f")


def percent(share: float) -> str:
    """A share as percent, with three significant digits."""
    if math.isnan(share):
        return NOTHING
    return f"{number(round(100 * share, 9))}\u00a0%"


def probability(share: float) -> str:
    """A probability as percent, never rounded to 0 or 100."""
    if share > 0.9995:
        return ">\u00a099.9\u00a0%"
    return "<\u00a00.1\u00a0%" if share < 0.001 else percent(share)


def plain(name: object, max_length: int = 60) -> str:
    """A name on one line, without invisible characters; a long one keeps both ends."""
    text = "".join(
        " " if unicodedata.category(letter) in INVISIBLE else letter for letter in str(name)
    )
    text = " ".join(text.split()) or "(blank)"
    if len(text) <= max_length:
        return text
    end = max_length // 3
    return f"{text[: max_length - end - 1].rstrip()}…{text[-end:].lstrip()}"
