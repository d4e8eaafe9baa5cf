"""Which claims hold, computed from the records: the paper's, and what was aimed at here."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..harness.statistics import Metric, Runs, gain
from ..harness.tables import bullets, show_change, table
from .methods import OURS, PAPER, SIZES
from .task import ACCURACY, ECE, NLL

SMALL = tuple(name for name, size in SIZES.items() if size <= 1_000)
BEYOND, WITHIN = 2.0, 1.0  # standard errors
BASELINE = "mlp"

READING = """\
Changes from MLP on the same seeds ± their standard errors; bold is beyond two of them."""


def lower(runs: Runs, method: str, metric: Metric) -> dict[str, bool]:
    """By size, whether a method is better than MLP beyond two standard errors; measured ones."""
    found = {}
    for column in SMALL:
        if (better := gain(runs, method, column, metric, BASELINE)) is not None:
            found[column] = better.mean > BEYOND * better.stderr  # false without a standard error
    return found


def counted(runs: Runs, method: str) -> str:
    """In how many cells NLL and ECE are lower than MLP's, and where they are not."""
    cells = {
        (metric.label, column): holds
        for metric in (NLL, ECE)
        for column, holds in lower(runs, method, metric).items()
    }
    total = 2 * len(SMALL)
    text = f"{runs.methods[method].label} in {sum(cells.values())} of {total} cells"
    misses = [f"{label} at {int(size):,}" for (label, size), holds in cells.items() if not holds]
    notes = [f"not {', '.join(misses)}"] if misses else []
    if len(cells) < total:
        notes.append(f"{total - len(cells)} are not measured")
    return f"{text} ({'; '.join(notes)})" if notes else text


def _listed(runs: Runs, methods: Iterable[str]) -> str:
    return ", ".join(counted(runs, method) for method in methods if runs.has(method))


def paper(runs: Runs) -> list[str]:
    """The paper's claims."""
    vbll = [method for method in PAPER if method != BASELINE]
    first = (
        '"Significantly lower predictive NLL and ECE at smaller training dataset sizes" than the '
        "MLP's, taken as beyond two standard errors at 10, 100 and 1,000 reviews: "
        f"{_listed(runs, vbll)}."
    )
    worse = [
        f"{runs.methods[method].label} at {int(column):,}"
        for method in vbll
        for column in runs.columns
        if (better := gain(runs, method, column, ACCURACY, BASELINE)) is not None
        and better.mean < -BEYOND * (0.0 if math.isnan(better.stderr) else better.stderr)
    ]
    second = (
        '"Strong performance in comparison to the MLP baseline", taken as an accuracy that is not '
        "lower beyond two standard errors at any size: "
        + (f"does not hold for {', '.join(worse)}." if worse else "holds.")
    )
    return [first, second]


def behind(runs: Runs, method: str) -> dict[str, list[str]]:
    """By size, the methods whose NLL is lower than that of one of ours beyond a standard error."""
    found = {}
    for column in runs.columns:
        others = [name for name in runs.methods if name not in OURS]
        gains = {name: gain(runs, method, column, NLL, name) for name in others}
        found[column] = [
            name
            for name, better in gains.items()
            if better is not None
            and better.mean < -WITHIN * (0.0 if math.isnan(better.stderr) else better.stderr)
        ]
    return found


def targets(runs: Runs) -> list[str]:
    """What was aimed at here with our defaults; nothing without their records."""
    ours = [method for method in OURS if runs.has(method)]
    if not ours:
        return []
    lines = [
        f"Ours by default, lower NLL and ECE than MLP beyond two standard errors at 10, 100 and "
        f"1,000 reviews: {_listed(runs, ours)}."
    ]
    for method in ours:
        worse = [
            f"{', '.join(runs.methods[name].label for name in names)} at {int(column):,}"
            for column, names in behind(runs, method).items()
            if names
        ]
        lines.append(
            f"{runs.methods[method].label}, NLL at or below every other row within one standard "
            "error: " + (f"not against {'; '.join(worse)}." if worse else "holds at every size.")
        )
    return lines


def changes(runs: Runs) -> str:
    """Tables of changes from MLP."""
    parts = [READING]
    for metric in (NLL, ECE):
        rows = []
        for method in runs.methods:
            if method != BASELINE and runs.has(method):
                cells = [
                    show_change(
                        runs.by_seed(BASELINE, column, metric.name),
                        runs.by_seed(method, column, metric.name),
                        metric.digits,
                    )
                    for column in runs.columns
                ]
                rows.append([runs.methods[method].label, *cells])
        header = [f"{metric.label}, change", *(f"{SIZES[column]:,}" for column in runs.columns)]
        parts.append(table(header, rows))
    return "\n\n".join(parts)


def summary(runs: Runs) -> str:
    """The claims, as a list."""
    return bullets([*paper(runs), *targets(runs)])


def headline(runs: Runs) -> str:
    """One line for the index."""
    methods = [method for method in (*PAPER, *OURS) if method != BASELINE]
    return (
        "Lower NLL and ECE than the MLP beyond two standard errors at 10, 100 and 1,000 reviews: "
        f"{_listed(runs, methods)}."
    )
