"""The commands; each imports what it needs, so that help and mistakes are quick."""

from __future__ import annotations

import importlib.resources
import random
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from tqdm import tqdm

from ... import __version__
from ..._disk import replacing
from . import LEVEL, print_doctor
from .arguments import (
    Delimiter,
    Effort,
    Executor,
    Head,
    Interval,
    ModelFolder,
    Task,
    check_apart,
    check_level,
    check_roles,
    read_delimiter,
    read_weights,
    read_widths,
)

app = typer.Typer(
    help="Predictions from tables, with calibrated uncertainty.",
    epilog="Start with: **lastlayer demo**, or **lastlayer fit train.csv --target price**.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console(stderr=True, highlight=False)  # standard output is for results
output = Console(highlight=False)

ROW_LABELS = ("", "Unnamed: 0")  # how pandas writes the name of an unnamed index, and reads it


def _print_version(asked: bool) -> None:
    if asked:
        print(f"lastlayer {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options without a command."""


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
    console.print(f"{_bold(train)}: {table.num_rows:,} rows, {table.num_columns} columns")
    if not file.parquet and file.encoding != "utf-8":
        console.print(f"the file is not UTF-8; it is read as {file.encoding}")
    for line in notice_lines(found, {*(ignore or []), *labels}):
        console.print(line)
    console.print(f"{chosen} of {_bold(target)}: {why}")
    if chosen == "regression" and head is not Head.discriminative:
        console.print(f"--head {head.value} is for classification, and has no effect here")
    if labels:
        console.print("the first column has no name: it is taken for row labels and ignored")
    if num_dropped:
        count = "1 row" if num_dropped == 1 else f"{num_dropped:,} rows"
        finite = "a finite " if chosen == "regression" else ""
        console.print(f"dropped {count} without {finite}{_bold(target)}")
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
    console.print(f"{_bold(model)} written in {time.monotonic() - started:.0f} s")


@app.command(
    epilog="Example: **lastlayer predict model new.csv --output predictions.csv --level 0.8**"
)
def predict(
    model: ModelFolder,
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with the model's columns.")],
    to: Annotated[
        Path, typer.Option("--output", "-o", help="CSV or Parquet file to write.")
    ] = Path("predictions.csv"),
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = LEVEL,
    with_inputs: Annotated[
        bool, typer.Option("--with-inputs", help="Write the columns of the table too.")
    ] = False,
    executor: Annotated[
        Executor, typer.Option(help="This process, or the workers of a Ray cluster.")
    ] = Executor.local,
    delimiter: Delimiter = None,
) -> None:
    """Predict each row of a table of any size.

    Numbers get a mean, a standard deviation and an interval; classes get probabilities. A high
    ood_score means an out-of-distribution row; `unusual` means above the threshold.
    """
    check_level(level)
    file = _open(model, table, delimiter)
    check_apart(table, to)

    from ..files.writing import Writer, side_by_side
    from .cluster import predicted
    from .display import warning_lines
    from .saved import SavedModel

    saved = SavedModel(model)
    rows = unusual = 0
    with replacing(to) as partial, tqdm(unit=" rows", unit_scale=True, disable=None) as bar:
        writer = Writer(partial, to)
        parts = predicted(saved, saved.parts(file), lambda part: part.rows, level, executor)
        for part, predictions in parts:
            rows += part.rows.num_rows
            unusual += sum(predictions["unusual"].to_pylist())
            inputs = part.rows if writer.parquet else part.written
            writer.write(side_by_side(inputs, predictions) if with_inputs else predictions)
            bar.update(part.rows.num_rows)
        writer.close()
    for line in warning_lines(saved):
        console.print(line)
    console.print(f"{_bold(to)}: {rows:,} rows, {unusual:,} of them unusual")


@app.command(epilog="Example: **lastlayer evaluate model test.csv**")
def evaluate(
    model: ModelFolder,
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with the target.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    delimiter: Delimiter = None,
) -> None:
    """Score predictions on held-out data: rows that were not trained on."""
    file = _open(model, table, delimiter)

    from ..files.codec import dumps
    from .display import scores_table, warning_lines
    from .saved import SavedModel

    saved = SavedModel(model)
    scores = saved.evaluate(file)
    if as_json:
        print(dumps(scores, portable=True))
        return
    output.print(scores_table(scores))
    for line in warning_lines(saved):
        console.print(line)


@app.command(epilog="Example: **lastlayer report model test.csv --output report.html**")
def report(
    model: ModelFolder,
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file, best with the target.")],
    to: Annotated[Path, typer.Option("--output", "-o", help="HTML page to write.")] = Path(
        "report.html"
    ),
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column that identifies rows to inspect.")
    ] = None,
    delimiter: Delimiter = None,
) -> None:
    """Write a page about a model: scores, calibration, unusual rows, effects of columns."""
    file = _open(model, table, delimiter)
    check_apart(table, to)

    from ..report import write_report
    from .display import warning_lines
    from .saved import SavedModel

    saved = SavedModel(model)
    file.require([id_column] if id_column else [])
    rows = saved.whole(file)
    write_report(saved.estimator, rows, saved.target, to, id_column=id_column)
    for line in warning_lines(saved):
        console.print(line)
    console.print(f"{_bold(to)} written; open it in a browser")


@app.command(epilog="Example: **lastlayer export model --onnx --output model.onnx**")
def export(
    model: ModelFolder,
    onnx: Annotated[bool, typer.Option("--onnx", help="As ONNX, the only format so far.")] = False,
    to: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("model.onnx"),
) -> None:
    """Write a model for serving without Python, and check that its predictions are the same."""
    if not onnx:
        raise typer.BadParameter("name the format: --onnx")
    from ..onnx import export_onnx
    from .saved import SavedModel

    differences = export_onnx(SavedModel(model).estimator, to).differences
    console.print(f"{_bold(to)} written; largest differences of its outputs from torch's:")
    for name, value in differences.items():
        console.print(f"  {name}  {value:.1e}")


@app.command(epilog="Example: **lastlayer demo --folder demo-output**")
def demo(
    folder: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo-output"),
) -> None:
    """Train on three quarters of a table of penguins, evaluate on the rest, write a report."""
    source = importlib.resources.files(__package__) / "penguins.csv"
    header, *rows = source.read_text().splitlines(keepends=True)
    random.Random(0).shuffle(rows)  # the table is sorted by species
    train, test = folder / "train.csv", folder / "test.csv"
    parts = {train: rows[len(rows) // 4 :], test: rows[: len(rows) // 4]}
    for path, part in parts.items():
        text = "".join([header, *part])
        if path.exists() and path.read_bytes() != text.encode():
            raise FileExistsError(f"{path} already exists; choose another folder by --folder")
        with replacing(path) as partial:
            partial.write_text(text)
    model, page = folder / "model", folder / "report.html"
    _show_command(f"lastlayer fit {train} --target body_mass_g --model {model}")
    fit(train, "body_mass_g", model)
    _show_command(f"lastlayer evaluate {model} {test}")
    evaluate(model, test)
    _show_command(f"lastlayer report {model} {test} --output {page}")
    report(model, test, page)


@app.command(epilog="Example: **lastlayer doctor**")
def doctor() -> None:
    """Print versions, threads, devices, and what is missing for which extra.

    Please add it to a report of a bug.
    """
    print_doctor()


def _open(model: Path, table: Path, delimiter: str | None) -> Any:
    """The table, if it and the model are there: checked before anything slow is imported."""
    from ..files.errors import check_model_folder
    from ..files.tables import TableFile

    check_model_folder(model)
    return TableFile(table, read_delimiter(delimiter))


def _show_command(command: str) -> None:
    console.print(f"\n[dim]$ {escape(command)}[/dim]", soft_wrap=True)


def _bold(name: str | Path) -> str:
    """A name in bold, its brackets as they are."""
    return f"[bold]{escape(str(name))}[/bold]"
