"""Tables of docs/tables.md: estimators with default settings on tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.markdown import provenance, record, table

METHODS = (
    "LastLayerRegressor",
    "constant noise",
    "GaussianProcessRegressor",
    "BayesianRidge",
    "NGBRegressor",
    "CatBoostRegressor",
    "conformal trees",
)
FORMER = "former defaults"
METRICS = {
    "rmse": "RMSE",
    "crps": "CRPS",
    "width": "width of 90 % intervals",
    "seconds": "seconds of processor time",
}


def nll() -> str:
    """Estimators with default settings on tables: NLL, the best in bold, and coverage."""

    def cells(rows: list[dict[str, Any] | None]) -> list[str]:
        shares = ["" if row is None else f" ({100 * row['coverage']:.0f} %)" for row in rows]
        return [f"{nll}{share}" for nll, share in zip(best(rows, "nll"), shares, strict=True)]

    return by_table(cells, "")


def by_metric(metric: str) -> str:
    """Estimators with default settings on tables: one metric, the best in bold."""
    return by_table(partial(best, metric=metric), METRICS[metric])


def by_table(cells: Callable[[list[dict[str, Any] | None]], list[str]], corner: str) -> str:
    """A line for each table, from the rows of all methods on it, None where there is none."""
    measured = record("estimators.json")
    rows = measured["sections"]["summary"]
    methods = sorted({row["method"] for row in rows}, key=[*METHODS, FORMER].index)
    lines = []
    for name, group in itertools.groupby(rows, key=lambda row: row["table"]):
        of_table = {row["method"]: row for row in group}
        first = next(iter(of_table.values()))
        about = f"{name}, {first['rows']:,} rows, {first['splits']} splits"
        lines.append([about, *cells([of_table.get(method) for method in methods])])
    names = [corner, *(f"`{method}`" for method in methods)]
    by = provenance(measured, "scikit-learn", "ngboost")
    return f"{table(names, lines)}\n\nMeans over random splits. {by}"


def best(rows: list[dict[str, Any] | None], metric: str) -> list[str]:
    """Numbers with three digits, NLL with two decimals; the lowest in bold, a dash for none."""
    values = [math.nan if row is None else row[metric] for row in rows]
    texts = [
        f"{v:.2f}" if metric == "nll" else f"{v:,.0f}" if v >= 1000 else f"{v:.3g}" for v in values
    ]
    known = [value for value in values if not math.isnan(value)]
    lowest = texts[values.index(min(known))]
    return [
        "–" if math.isnan(value) else f"**{text}**" if text == lowest else text
        for text, value in zip(texts, values, strict=True)
    ]


def times() -> str:
    """Processor time by the number of rows, beside CatBoost's."""
    measured = record("table-times.json")
    lines = [
        [
            f"{row['rows']:,}",
            f"{row['seconds']:.1f}",
            f"{row['catboost_seconds']:.1f}",
            f"{row['ratio']:.2f}",
            f"{row['nll']:.3f}",
            f"{row['catboost_nll']:.3f}",
        ]
        for row in measured["sections"]["rows"]
    ]
    names = ["rows", "seconds", "CatBoost's", "ratio", "NLL", "CatBoost's"]
    return f"{table(names, lines)}\n\n{provenance(measured)}"
