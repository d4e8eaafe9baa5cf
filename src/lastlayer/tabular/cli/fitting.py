"""Training a model from a file; imports what it needs late, so that mistakes are quick."""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .app import app, bold, console
from .arguments import (
    Delimiter,
    Effort,
    Head,
    Interval,
    Task,
    check_roles,
    read_delimiter,
    read_weights,
    read_widths,
)

ROW_LABELS = ("", "Unnamed: 0")  # how pandas writes the name of an unnamed index, and reads it


@app.command(epilog="Example: **lastlayer fit train.csv --target price**")
def fit(
    train: Annotated[Path, typer.Argument(help="CSV or Parquet file with a header.")],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    model: Annotated[Path, typer.Option(help="Folder to write.")] = Path("model"),
    task: Annotated[
        Task, typer.Option(help="What to predict; inferred from the target by default.")
    ] = Task.auto,
    head: Annotated[
        Head, typer.Option(help="Last layer for classification.")
    ] = Head.discriminative,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Column not to learn from; may be repeated.")
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="Column that says how often a row counts.")
    ] = None,
    hidden_layers: Annotated[
        str, typer.Option(help="Widths of the hidden layers, separated by commas.")
    ] = "50,50",
    max_epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of epochs. [default: by --preset and rows]"),
    ] = None,
    preset: Annotated[
        Effort, typer.Option(help="How long to search for the best network.")
    ] = Effort.default,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds of training, after which the best so far is kept."),
    ] = None,
    interval: Annotated[
        Interval,
        typer.Option(help="Intervals of `predict`; conformal ones are guaranteed to cover."),
    ] = Interval.predictive,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = 0,
    delimiter: Delimiter = None,
    month_first: Annotated[
        bool | None,
        typer.Option(
            "--month-first/--day-first",
            help="How to read dates such as 01/02/2020, where the column does not tell.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show only errors.")] = False,
) -> None:
    """Train a model on a table.

    The kind of each column is inferred and shown: number, date, category; missing values are fine.
    Numbers may be written as `$1,234.50`, `1.234,56` or `3 kg`, dates as `31.12.2020`. Values that
    are in the way are named before training, and columns that look like identifiers.
    Number of epochs, regularisation and calibration are chosen by cross-validation.
    """
    from ..files.tables import TableFile

    console.quiet = quiet
    roles = check_roles(target, ignore or [], weight)
    file = TableFile(train, read_delimiter(delimiter))
    file.require(roles)

    from sklearn.exceptions import ConvergenceWarning

    from ..columns import AlmostNumbers
    from ..estimators import LastLayerClassifier, LastLayerRegressor
    from ..files.folder import check_folder, save
    from .display import columns_table, held_out_lines, notice_lines, search_lines
    from .notices import notices
    from .target import check_numbers, infer_task, kind_of, split_target

    check_folder(model)
    table, formats, found = file.read(month_first)
    started = time.monotonic()
    chosen, why = task.value, "by --task"
    if task is not Task.classification:
        check_numbers(target, found)
    if task is Task.auto:
        chosen, why = infer_task(table[target])
    labels = [name for name in table.column_names[:1] if name in ROW_LABELS and name not in roles]
    inputs = table.drop_columns([*(ignore or []), *labels])
    rows, known, num_dropped = split_target(inputs, target, chosen)
    counts = None
    if weight:
        counts, rows = read_weights(rows[weight], weight), rows.drop_columns([weight])
    options: dict[str, Any] = {
        "hidden_layers": read_widths(hidden_layers),
        "max_epochs": max_epochs or "auto",
        "preset": preset.value,
        "time_limit": time_limit,
        "interval": interval.value,
        "random_state": seed,
        "verbose": not quiet,
    }
    console.print(f"{bold(train)}: {table.num_rows:,} rows, {table.num_columns} columns")
    if file.csv and file.csv.encoding != "utf-8":
        console.print(f"the file is not UTF-8; it is read as {file.csv.encoding}")
    for line in notice_lines(found, {*(ignore or []), *labels}):
        console.print(line)
    console.print(f"{chosen} of {bold(target)}: {why}")
    if chosen == "regression" and head is not Head.discriminative:
        console.print(f"--head {head.value} is for classification, and has no effect here")
    if labels:
        console.print("the first column has no name: it is taken for row labels and ignored")
    if num_dropped:
        count = "1 row" if num_dropped == 1 else f"{num_dropped:,} rows"
        finite = "a finite " if chosen == "regression" else ""
        console.print(f"dropped {count} without {finite}{bold(target)}")
    estimator: Any = (
        LastLayerRegressor(**options)
        if chosen == "regression"
        else LastLayerClassifier(head.value, **options)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlmostNumbers)  # which the notices name
        distinct = estimator.read(rows, known, counts)
    console.print(columns_table(estimator.columns_, rows, formats))
    for line in notice_lines(notices(estimator.columns_, rows)):
        console.print(line)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a line below says so
        estimator.train(distinct)
    kept = {target, *(column.name for column in estimator.columns_.used)}
    about = {
        "target": target,
        "target_kind": kind_of(table[target]) if chosen == "classification" else "number",
        "file": train.name,
        "rows": rows.num_rows,
        "weight": weight,
        "formats": {name: asdict(formats[name]) for name in formats if name in kept},
    }
    save(estimator, model, about)
    for line in [*search_lines(estimator), *held_out_lines(estimator, target)]:
        console.print(line)
    console.print(f"{bold(model)} written in {time.monotonic() - started:.0f} s")
