"""The commands for a trained model; each imports what it needs, so that help is quick."""

from __future__ import annotations

import importlib.resources
import random
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from tqdm import tqdm

from ..._disk import replacing
from . import LEVEL, print_doctor
from .app import app, bold, console, output
from .arguments import Delimiter, Executor, ModelFolder, check_apart, check_level, read_delimiter
from .fitting import fit

__all__ = ["app"]  # with all commands


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
    console.print(f"{bold(to)}: {rows:,} rows, {unusual:,} of them unusual")


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
    console.print(f"{bold(to)} written; open it in a browser")


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
    console.print(f"{bold(to)} written; largest differences of its outputs from torch's:")
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
