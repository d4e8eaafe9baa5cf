"""What the commands show."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.markup import escape
from rich.table import Table

from ..columns import Column, Columns

if TYPE_CHECKING:
    from .models import Model

MOST_COLUMNS = 40  # listed
MEASURES = {
    "rows": "rows",
    "rmse": "root mean squared error",
    "r2": "R², share of the variance explained",
    "nll": "negative log-likelihood, nats",
    "crps": "CRPS, in units of the target",
    "coverage_0.9": "targets in their 90% interval",
    "width_0.9": "mean width of these intervals",
    "accuracy": "share that is right",
    "brier": "Brier score",
    "ece": "expected calibration error",
    "adaptive_ece": "the same with bins of equal size",
    "unusual": "share of unusual rows",
}


def columns_table(columns: Columns, rows: pa.Table) -> Table:
    """How columns are read."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("column", "read as", "missing", "values"):
        table.add_column(name, justify="right" if name == "missing" else "left")
    for column in columns.columns[:MOST_COLUMNS]:
        missing = pc.sum(pc.is_null(rows[column.name], nan_is_null=True)).as_py()
        table.add_row(
            escape(column.name),
            column.kind,
            f"{missing:,}" if missing else "",
            escape(_values(column, rows[column.name])),
        )
    others = Counter(column.kind for column in columns.columns[MOST_COLUMNS:])
    if others:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in others.most_common())
        table.add_row(f"and {others.total():,} more", kinds)
    return table


def _values(column: Column, values: Any) -> str:
    """What a column holds, in a few words."""
    if column.note:
        return column.note
    if column.kind == "category":
        return ", ".join(column.levels[:4]) + (", …" if len(column.levels) > 4 else "")
    try:
        ends = pc.min_max(values).as_py().values()
    except pa.ArrowNotImplementedError:  # durations
        return ""
    texts = [f"{end:g}" if isinstance(end, float) else str(end) for end in ends]
    return " to ".join(text.removesuffix(" 00:00:00") for text in texts)


def scores_lines(estimator: Any, target: str) -> list[str]:
    """How good predictions of held-out rows were."""
    scores = estimator.held_out_scores_
    if "rmse" in scores:
        line = (
            f"on rows held out: error ±{scores['rmse']:.3g} (R² {scores['r2']:.2f}), and "
            f"{scores['coverage_0.9']:.0%} of {escape(target)} in its 90% interval"
        )
    else:
        line = f"on rows held out: {scores['accuracy']:.1%} right, NLL {scores['nll']:.3g}"
    if math.isfinite(estimator.ood_threshold_):
        return [line]
    few = math.ceil(1 / estimator.false_alarm_rate)
    return [line, f"fewer than {few} different rows: which new ones are unusual cannot be said"]


def measures_table(found: dict[str, float]) -> Table:
    """How good predictions are."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, label in MEASURES.items():
        if name in found:
            shares = ("coverage_0.9", "unusual", "accuracy")
            value = found[name]
            text = f"{value:,.0f}" if name == "rows" else f"{value:.4g}"
            table.add_row(label, f"{value:.1%}" if name in shares else text)
    return table


def surprise_lines(model: Model) -> list[str]:
    """What to say about levels and gaps that there were not in training."""
    lines = []
    if model.new_gaps:
        text = f"rows with values missing that never were in training: {model.new_gaps:,}"
        told = math.isfinite(model.estimator.ood_threshold_)
        then = "they are unusual, and predicted without" if told else "they are predicted without"
        lines.append(f"[yellow]{text}; {then}[/yellow]")
    columns = {column.name: column for column in model.estimator.columns_.used}
    for name, levels in model.new_levels.items():
        some = ", ".join(sorted(levels)[:5]) + (", …" if len(levels) > 5 else "")
        text = f"{name} has values that were {columns[name].unseen}: {some}"
        lines.append(f"[yellow]{escape(text)}; their rows are predicted without it[/yellow]")
    return lines
