"""Numbers, tables and lists as GitHub's Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from .statistics import Estimate, change

BLANK = "–"  # nothing there
NARROW = "\u00a0"  # a space at which a cell does not break


def title(column: str) -> str:
    """A column as it stands in tables."""
    return column[:1].upper() + column[1:]


def show(cell: Estimate | None, digits: int = 2, bold: bool = False) -> str:
    """Mean ± standard error; NaN is shown, and a single run has no standard error."""
    if cell is None:
        return BLANK
    text = f"{cell.mean:.{digits}f}"
    if not math.isnan(cell.stderr):
        text += f"{NARROW}±{NARROW}{cell.stderr:.{digits}f}"
    return f"**{text}**" if bold else text


def printed_digits(cell: Estimate, usual: int = 2) -> int:
    """The usual number of decimals, or one more where a published figure has more."""
    return usual if round(cell.mean, usual) == cell.mean else usual + 1


def signed(value: float, digits: int = 1) -> str:
    """A number with its sign, except zero."""
    text = f"{value:+.{digits}f}".replace("-", "−").replace("inf", "∞")
    return text[1:] if math.isnan(value) or not text.strip("+−0.") else text


def show_change(before: Mapping[int, float], after: Mapping[int, float], digits: int = 2) -> str:
    """Mean difference over the seeds that both have, whose data are the same.

    With its standard error, and bold beyond two of them.
    """
    found = change(before, after)
    if found is None:
        return BLANK
    text = signed(found.mean, digits)
    if math.isfinite(found.stderr):
        text += show(Estimate(0.0, found.stderr), digits)[len(f"{0.0:.{digits}f}") :]
    return f"**{text}**" if abs(found.mean) > 2 * found.stderr else text


def table(header: Sequence[str], rows: Iterable[Sequence[str]], num_names: int = 1) -> str:
    """Pipes in columns: first names, to the left, then numbers; short rows are filled up."""
    lines = [[*row, *[""] * (len(header) - len(row))] for row in [header, *rows]]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(header))]
    rules = ["-" * (width - 1) for width in widths]
    lines.insert(1, [f":{r}" if i < num_names else f"{r}:" for i, r in enumerate(rules)])
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )


def bullets(lines: Sequence[str]) -> str:
    """A list, or the word that says it is empty."""
    return "\n".join(f"- {line}" for line in lines) if lines else "None."


def ranges(seeds: Sequence[int]) -> str:
    """Sorted numbers, with runs of them shortened: 0–4, 7."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(f"{p[0]}–{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
