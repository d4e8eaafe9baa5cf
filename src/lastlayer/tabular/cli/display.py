"""Tables and lines that the commands show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.markup import escape
from rich.table import Table

from ..columns import Column, Columns
from ..estimators._settings import ended_early
from ..files.dates import ISO, in_words
from ..files.inference import Notice, listed_rows
from ..files.parsing import Format
from ..values import cut

if TYPE_CHECKING:
    from .saved import SavedModel

MAX_COLUMNS = 40  # listed
MAX_LEVELS = 4  # listed of a category
MAX_NOTICES = 12  # listed
MIN_TRAINED = 0.05  # share of rows that are equal to rows of training, to warn of
SCORES = {
    "rows": "rows",
    "rmse": "root mean squared error (RMSE)",
    "r2": "variance explained (R²)",
    "nll": "negative log-likelihood (NLL), nats per row",
    "crps": "continuous ranked probability score (CRPS)",
    "coverage_0.9": "coverage of 90% intervals",
    "width_0.9": "mean width of 90% intervals",
    "accuracy": "accuracy",
    "most_frequent": "accuracy of the most frequent class alone",
    "brier": "Brier score",
    "ece": "expected calibration error (ECE)",
    "adaptive_ece": "ECE with bins of equal size",
    "unusual": "unusual rows (OOD score above the threshold)",
}
SHARES = ("coverage_0.9", "unusual", "accuracy", "most_frequent")


def columns_table(
    columns: Columns, rows: pa.Table, formats: dict[str, Format] | None = None
) -> Table:
    """The kind of each column, with missing values and values."""
    formats = formats or {}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("column", "kind", "missing", "values"):
        table.add_column(name, justify="right" if name == "missing" else "left")
    for column in columns.columns[:MAX_COLUMNS]:
        missing = pc.sum(pc.is_null(rows[column.name], nan_is_null=True)).as_py()
        table.add_row(
            escape(column.name),
            column.kind,
            f"{missing:,}" if missing else "",
            escape(_values(column, rows[column.name], formats.get(column.name))),
        )
    others = Counter(column.kind for column in columns.columns[MAX_COLUMNS:])
    if others:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in others.most_common())
        table.add_row(f"and {others.total():,} more", kinds)
    return table


def _values(column: Column, values: Any, form: Format | None) -> str:
    """What a column holds, in a few words."""
    if column.note:
        return column.note
    if column.kind == "category":
        more = ", …" if len(column.levels) > MAX_LEVELS else ""
        return ", ".join(map(cut, column.levels[:MAX_LEVELS])) + more
    try:
        ends = pc.min_max(values).as_py().values()
    except pa.ArrowNotImplementedError:  # durations
        return ""
    texts = [f"{end:g}" if isinstance(end, float) else str(end) for end in ends]
    between = " to ".join(text.removesuffix(" 00:00:00") for text in texts)
    if form is None:
        return between
    written = form.pattern not in ("", ISO)
    return f"{between} {form.unit}".rstrip() + f" ({in_words(form.pattern)})" * written


def notice_lines(notices: list[Notice], ignored: Collection[str] = ()) -> list[str]:
    """What to know about columns before training, except of those that are ignored."""
    shown = [notice for notice in notices if notice.column not in ignored]
    lines = [f"[yellow]{escape(f'{name}: {text}')}[/yellow]" for name, text, _ in shown]
    more = len(lines) - MAX_NOTICES
    return [*lines[:MAX_NOTICES], *([f"and {more:,} more such columns"] if more > 0 else [])]


def search_lines(estimator: Any) -> list[str]:
    """What cross-validation chose, and whether a longer search might find better."""
    layers = " x ".join(map(str, estimator.hidden_layers_)) or "none"
    parts = [f"hidden layers {layers}", f"{estimator.num_epochs_:,} epochs"]
    if estimator.task == "regression":
        parts.insert(1, f"{estimator.head_} noise")
    if estimator.num_bins_:
        parts.insert(1, f"{estimator.num_bins_} bins")
    line = f"chosen by held-out rows: {', '.join(parts)}"
    return [line, *(f"[yellow]{text}[/yellow]" for text in [ended_early(estimator)] if text)]


def held_out_lines(estimator: Any, target: str) -> list[str]:
    """Scores of out-of-fold predictions, and whether unusual rows can be told."""
    scores = estimator.held_out_scores_
    if estimator.task == "regression":
        line = (
            f"cross-validation: RMSE {scores['rmse']:.3g}, R² {scores['r2']:.2f}; 90% intervals "
            f"cover {scores['coverage_0.9']:.0%} of {escape(target)}"
        )
    else:
        line = (
            f"cross-validation: accuracy {scores['accuracy']:.1%} "
            f"({scores['most_frequent']:.1%} by the most frequent class alone), "
            f"NLL {scores['nll']:.3g}"
        )
    if math.isfinite(estimator.ood_threshold_):
        return [line]
    few = math.ceil(1 / estimator.false_alarm_rate)
    return [line, f"fewer than {few} different rows: no new row will be marked as unusual"]


def scores_table(scores: dict[str, float]) -> Table:
    """Scores of predictions, with their names."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, label in SCORES.items():
        if name in scores:
            value = scores[name]
            text = f"{value:,.0f}" if name == "rows" else f"{value:.4g}"
            table.add_row(label, f"{value:.1%}" if name in SHARES else text)
    return table


def warning_lines(model: SavedModel) -> list[str]:
    """Warnings of overflows, unread and missing values, and levels that were not in training."""
    lines = notice_lines(model.findings.notices)
    if model.trained_share >= MIN_TRAINED:
        text = f"{model.trained_share:.0%} of these rows are equal to rows of training, so that "
        held_out = held_out_lines(model.estimator, model.target)[0]
        lines.append(f"[yellow]{text}the scores are too good; {held_out}[/yellow]")
    for name, rows in model.findings.unread.items():
        values, them = ("1 value", "it") if len(rows) == 1 else (f"{len(rows):,} values", "them")
        text = f"{name}: {values} taken as missing: {listed_rows(rows)}; correct {them}"
        lines.append(f"[yellow]{escape(text)}[/yellow]")
    if model.num_infinite:
        text = f"rows with predictions that are not finite: {model.num_infinite:,}"
        lines.append(f"[yellow]{text}; their values are too large, correct them[/yellow]")
    if model.num_newly_missing:
        text = (
            "rows with missing values in columns that were complete in training: "
            f"{model.num_newly_missing:,}"
        )
        marked = math.isfinite(model.estimator.ood_threshold_)
        then = "they count as unusual, and" if marked else "they"
        lines.append(f"[yellow]{text}; {then} are predicted without these values[/yellow]")
    columns = {column.name: column for column in model.estimator.columns_.used}
    for name, levels in model.new_levels.items():
        some = ", ".join(map(cut, sorted(levels)[:5])) + (", …" if len(levels) > 5 else "")
        text = f"{name} has levels that were {columns[name].unseen}: {some}"
        lines.append(f"[yellow]{escape(text)}; their rows are predicted without it[/yellow]")
    return lines
