"""Tables of docs/tables.md: estimators with default settings on tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.markdown import provenance, record, table

METRICS = {
    "rmse": "RMSE",
    "crps": "CRPS",
    "width": "width of 90 % intervals",
    "seconds": "seconds of processor time",
}


def nll() -> str:
    """Estimators with default settings on tables: NLL, the best in bold, and coverage."""

    def cells(rows: list[dict[str, Any]]) -> list[str]:
        shares = [f"({100 * row['coverage']:.0f} %)" for row in rows]
        return [f"{nll} {share}" for nll, share in zip(best(rows, "nll"), shares, strict=True)]

    return by_table(cells, "")


def by_metric(metric: str) -> str:
    """Estimators with default settings on tables: one metric, the best in bold."""
    return by_table(partial(best, metric=metric), METRICS[metric])


def by_table(cells: Callable[[list[dict[str, Any]]], list[str]], corner: str) -> str:
    """A line for each table, from the rows of all methods on it."""
    measured = record("estimators.json")
    rows = measured["sections"]["summary"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for _, group in itertools.groupby(rows, key=lambda row: row["table"]):
        of_table = list(group)
        name, count = of_table[0]["table"], of_table[0]["rows"]
        lines.append([f"{name}, {count:,} rows", *cells(of_table)])
    about = f"Means over {measured['config']['splits']} random splits."
    names = [corner, *(f"`{method}`" for method in methods)]
    return f"{table(names, lines)}\n\n{about} {provenance(measured, 'scikit-learn', 'ngboost')}"


def best(rows: list[dict[str, Any]], metric: str) -> list[str]:
    """Numbers with three digits, NLL with two decimals; the lowest in bold."""
    values = [row[metric] for row in rows]
    texts = [
        f"{v:.2f}" if metric == "nll" else f"{v:,.0f}" if v >= 1000 else f"{v:.3g}" for v in values
    ]
    lowest = texts[values.index(min(values))]
    return [f"**{text}**" if text == lowest else text for text in texts]
