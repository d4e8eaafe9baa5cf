"""The commands; each imports what it needs, so that help and mistakes are quick."""

from __future__ import annotations

import errno
import importlib.resources
import json
import math
import os
import random
import shutil
import sys
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from tqdm import tqdm

from ... import __version__
from ..._disk import replacing
from . import LEVEL

app = typer.Typer(
    help="Predictions from tables that say how far to trust them.",
    epilog="Start with: **lastlayer demo**, or **lastlayer fit train.csv --target price**.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console(stderr=True, highlight=False)  # standard output is for results
output = Console(highlight=False)


Misuse: Any = typer.BadParameter.__base__  # of all that is wrong about arguments
LABELS = ("", "Unnamed: 0")  # how pandas writes a column without a name, and reads it
INTERRUPTED = 130  # as shells have it
FULL = "the disk is full; what was not whole is not there"
DISK_ERRORS = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: "the file is larger than the disk or a limit (ulimit -f) allows; write elsewhere, "
    "or raise the limit",
    errno.EIO: "the disk fails to read or write; check it, or use another",
}


class Task(str, Enum):
    """What to predict."""

    auto = "auto"
    regression = "regression"
    classification = "classification"


class Head(str, Enum):
    """Which last layer classes get."""

    discriminative = "discriminative"
    generative = "generative"


ModelFolder = Annotated[Path, typer.Argument(help="Folder that `lastlayer fit` wrote.")]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Between the values of a CSV file; found out by default. A tab is \\t."),
]


@app.command()
def fit(
    train: Annotated[Path, typer.Argument(help="CSV or Parquet file with a header.")],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    model: Annotated[Path, typer.Option(help="Folder to write.")] = Path("model"),
    task: Annotated[Task, typer.Option(help="By default, what the target looks like.")] = Task.auto,
    head: Annotated[Head, typer.Option(help="For classes.")] = Head.discriminative,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Column not to learn from; may be repeated.")
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="Column that says how often a row counts.")
    ] = None,
    hidden_layers: Annotated[
        str, typer.Option(help="Widths of the network, with commas.")
    ] = "50,50",
    max_epochs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Passes over the data, at most. [default: 1024, fewer of many rows]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of random numbers.")] = 0,
    delimiter: Delimiter = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show nothing but errors.")] = False,
) -> None:
    """Train a model on a table.

    What columns hold is found out and shown: numbers, dates, categories; missing values are fine.
    How long to train, and how wrong predictions are, is learnt from rows held out in turns.
    """
    from ..columns import Columns
    from ..estimators import LastLayerClassifier, LastLayerRegressor, save
    from ..estimators.folder import check_folder
    from .files import TableFile
    from .models import infer_task, kind_of, split_target
    from .shown import columns_table, scores_lines

    console.quiet = quiet
    roles = [target, *(ignore or []), *([weight] if weight else [])]
    for name in roles:
        if roles.count(name) > 1:
            raise typer.BadParameter(f"column {name!r} cannot be two of target, weight, ignored")
    check_folder(model)
    file = TableFile(train, _delimiter(delimiter))
    file.require(roles)
    table = file.read()
    started = time.monotonic()
    chosen, why = task.value, "as you say"
    if task is Task.auto:
        chosen, why = infer_task(table[target])
    labels = [name for name in table.column_names[:1] if name in LABELS and name not in roles]
    inputs = table.drop_columns([*(ignore or []), *labels])
    rows, known, left_out = split_target(inputs, target, chosen)
    counts = None
    if weight:
        counts, rows = _weights(rows[weight], weight), rows.drop_columns([weight])
    options: dict[str, Any] = {
        "hidden_layers": _widths(hidden_layers),
        "max_epochs": max_epochs or "auto",
        "random_state": seed,
        "verbose": not quiet and sys.stderr.isatty(),
    }
    console.print(f"{_bold(train)}: {table.num_rows:,} rows, {table.num_columns} columns")
    console.print(f"{chosen} of {_bold(target)}: {why}")
    if chosen == "regression" and head is not Head.discriminative:
        console.print(f"--head {head.value} is for classes; regression has its own, and takes that")
    if labels:
        console.print("the first column has no name: taken for labels of rows, it is left out")
    if left_out:
        count = "1 row" if left_out == 1 else f"{left_out:,} rows"
        finite = "a finite " if chosen == "regression" else ""
        console.print(f"left out: {count} without {finite}{_bold(target)}")
    estimator: Any = (
        LastLayerRegressor(**options)
        if chosen == "regression"
        else LastLayerClassifier(head.value, **options)
    )
    console.print(columns_table(Columns.of(rows, counts), rows))
    estimator.fit(rows, known, counts)
    about = {
        "target": target,
        "target_kind": kind_of(table[target]) if chosen == "classification" else "number",
        "file": train.name,
        "rows": rows.num_rows,
        "weight": weight,
    }
    save(estimator, model, about)
    for line in scores_lines(estimator, target):
        console.print(line)
    console.print(f"{_bold(model)} written in {time.monotonic() - started:.0f} s")


@app.command()
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
    delimiter: Delimiter = None,
) -> None:
    """Predict each row of a table, of any size.

    Numbers get mean, standard deviation and an interval; classes their probabilities. A high
    ood_score means a row unlike those of training; `unusual` says above the threshold.
    """
    from .files import TableFile, Writer, beside
    from .models import Model
    from .shown import surprise_lines

    if not 0 < level < 1:
        raise typer.BadParameter(f"must lie between 0 and 1, as 0.9 does, not {level}")
    known, file = Model(model), TableFile(table, _delimiter(delimiter))
    _check_apart(table, to)
    rows = unusual = 0
    with replacing(to) as partial, tqdm(unit=" rows", unit_scale=True, disable=None) as bar:
        writer = Writer(partial, to)
        for part in known.parts(file):
            found = known.predictions(part, level)
            rows, unusual = rows + part.num_rows, unusual + sum(found["unusual"].to_pylist())
            if with_inputs:
                found = beside(part, found)
            writer.write(found)
            bar.update(part.num_rows)
        writer.close()
    for line in surprise_lines(known):
        console.print(line)
    console.print(f"{_bold(to)}: {rows:,} rows, {unusual:,} of them unusual")


@app.command()
def evaluate(
    model: ModelFolder,
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with the target.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    delimiter: Delimiter = None,
) -> None:
    """Compare predictions with what happened, on rows that were not trained on."""
    from .files import TableFile
    from .models import Model
    from .shown import measures_table, surprise_lines

    known = Model(model)
    found = known.evaluate(TableFile(table, _delimiter(delimiter)))
    if as_json:
        finite = {name: value if math.isfinite(value) else None for name, value in found.items()}
        print(json.dumps(finite))
        return
    output.print(measures_table(found))
    for line in surprise_lines(known):
        console.print(line)


@app.command()
def report(
    model: ModelFolder,
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file, best with the target.")],
    to: Annotated[Path, typer.Option("--output", "-o", help="HTML page to write.")] = Path(
        "report.html"
    ),
    delimiter: Delimiter = None,
) -> None:
    """Write a page about a model: calibration, intervals, unusual rows, effects of columns."""
    from ..report import write_report
    from .files import TableFile
    from .models import Model

    known, file = Model(model), TableFile(table, _delimiter(delimiter))
    _check_apart(table, to)
    write_report(known.estimator, known.whole(file), known.target, to)
    console.print(f"{_bold(to)} written; open it in a browser")


@app.command()
def export(
    model: ModelFolder,
    onnx: Annotated[bool, typer.Option("--onnx", help="As ONNX, the only format so far.")] = False,
    to: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("model.onnx"),
) -> None:
    """Write a model for serving without Python, and check that it predicts the same."""
    if not onnx:
        raise typer.BadParameter("say which format: --onnx")
    from ..onnx import export_onnx
    from .models import Model

    differences = export_onnx(Model(model).estimator, to).differences
    console.print(f"{_bold(to)} written; its outputs differ from torch's at most by")
    for name, value in differences.items():
        console.print(f"  {name}  {value:.1e}")


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo-output"),
) -> None:
    """Train on penguins, evaluate on others, and write a report."""
    source = importlib.resources.files(__package__) / "penguins.csv"
    header, *rows = source.read_text().splitlines(keepends=True)
    random.Random(0).shuffle(rows)  # they are listed by species, and mostly in pairs
    train, test = folder / "train.csv", folder / "test.csv"
    parts = {train: rows[len(rows) // 4 :], test: rows[: len(rows) // 4]}
    for path, part in parts.items():
        text = "".join([header, *part])
        if path.exists() and path.read_bytes() != text.encode():
            raise FileExistsError(f"{path} is there already; choose another folder by --folder")
        with replacing(path) as partial:
            partial.write_text(text)
    model, page = folder / "model", folder / "report.html"
    console.print("[dim]$ lastlayer fit train.csv --target body_mass_g[/dim]")
    fit(train, "body_mass_g", model)
    console.print("[dim]$ lastlayer evaluate model test.csv[/dim]")
    evaluate(model, test)
    console.print("[dim]$ lastlayer report model test.csv[/dim]")
    report(model, test, page)


# ---------------------------------------------------------------------------------- checked


def _bold(name: str | Path) -> str:
    """A name as it is, brackets included."""
    return f"[bold]{escape(str(name))}[/bold]"


def _delimiter(text: str | None) -> str | None:
    if text is None:
        return None
    text = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(text) != 1 or not text.isascii() or text in '"\r\n':
        raise typer.BadParameter(
            "--delimiter is one ASCII character, as ; is, and neither a quote nor the end of a "
            f"line, not {text!r}"
        )
    return text


def _check_apart(table: Path, to: Path) -> None:
    if to.exists() and to.samefile(table):
        raise typer.BadParameter(f"{to} is the table itself; name another file by --output")


def _weights(values: Any, name: str) -> Any:
    try:
        weights = values.cast("float64", safe=False).to_numpy()  # large integers are rounded
    except (ValueError, NotImplementedError):
        raise typer.BadParameter(f"weights are numbers, and {name!r} holds others") from None
    if not (weights >= 0).all() or not weights.any():  # not NaN either
        raise typer.BadParameter(f"weights in {name!r} must be there, at least 0, and not all 0")
    return weights


def _widths(text: str) -> tuple[int, ...]:
    try:
        widths = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        widths = (0,)
    if any(width < 1 for width in widths):
        raise typer.BadParameter(f"hidden layers are numbers with commas, as 50,50, not {text!r}")
    return widths


# --------------------------------------------------------------------------------- run safely


def run(arguments: Sequence[str]) -> int:
    """Run a command; the exit code is 0, 1 if it failed, 2 if misused, 130 if interrupted."""
    if list(arguments) == ["--version"]:
        print(f"lastlayer {__version__}")
        return 0
    console.quiet = False
    try:
        code = app(list(arguments or ["--help"]), prog_name="lastlayer", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Misuse as error:
        return _failed(error.format_message(), 2)
    except Exception as error:
        if os.environ.get("LASTLAYER_DEBUG"):
            raise
        return _failed(_explained(error), 1)
    if code == INTERRUPTED:
        return _failed("interrupted; what was not whole is not there", INTERRUPTED)
    return int(code or 0)


def _explained(error: Exception) -> str:
    """What went wrong, in words for users."""
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return DISK_ERRORS.get(error.errno or 0) or (error.strerror or str(error)) + where
    if isinstance(error, MemoryError):
        return "this is too much for the memory; train on fewer rows or columns"
    if isinstance(error, ValueError | FloatingPointError | ImportError | RuntimeError):
        return str(error)
    where = "LASTLAYER_DEBUG=1 shows where; please report it"
    return f"this is a bug of lastlayer: {type(error).__name__} {error}; {where}"


def _failed(message: str, code: int) -> int:
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else 10_000
    text = f"[red]lastlayer:[/red] {escape(' '.join(message.split()))}"
    Console(stderr=True, highlight=False, width=width).print(text, soft_wrap=True)
    return code
