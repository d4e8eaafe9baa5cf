"""`python -m experiments`: list the experiments, run them, write the page of results."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

try:
    import typer
    from rich.console import Console
    from rich.table import Table
except ImportError as error:
    raise SystemExit(
        f"the experiments need {error.name}; install it with: pip install -e '.[experiments]'"
    ) from error

from .datasets import uci as data

app = typer.Typer(
    help="The paper's experiments: run them, and compare their results with the paper's.",
    no_args_is_help=False,
    add_completion=False,
    rich_markup_mode="markdown",
)
console = Console()

Results = Annotated[Path, typer.Option(help="Folder of the records.", file_okay=False)]
DataSets = Annotated[str, typer.Option(help=f"Of {', '.join(data.NAMES)}, with commas; or all.")]


class Executor(str, Enum):
    """Where jobs run."""

    local = "local"
    ray = "ray"


def _names(text: str, known: list[str], what: str, **groups: list[str]) -> list[str]:
    """Names from a list with commas, in which a group stands for some, and "all" for all."""
    groups["all"] = known
    parts = [part.strip() for part in text.split(",") if part.strip()]
    names = list(dict.fromkeys(name for part in parts for name in groups.get(part, [part])))
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        choices = ", ".join([*known, *groups])
        raise typer.BadParameter(
            f"unknown {what}: {', '.join(wrong) or 'none given'}; choose from {choices}"
        )
    return names


def _stop(error: Exception, code: int = 2) -> NoReturn:
    """Say what is wrong, and what to do, without a traceback."""
    console.print(str(error), style="red", markup=False, highlight=False)
    raise typer.Exit(code) from None


@app.callback(invoke_without_command=True)
def listing(context: typer.Context) -> None:
    """The paper's experiments: run them, and compare their results with the paper's."""
    if context.invoked_subcommand is not None:
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("experiment", "what it is"):
        table.add_column(column)
    for command in app.registered_commands:
        function = command.callback
        assert function is not None
        summary = (function.__doc__ or "").strip().splitlines()[0]
        table.add_row(command.name or function.__name__, summary)
    console.print(table)
    console.print("\nMore about one: [bold]python -m experiments NAME --help[/bold]")


@app.command()
def uci(
    datasets: DataSets = "all",
    methods: Annotated[
        str,
        typer.Option(
            help="Names with commas; paper, its ten; or all. `experiments methods` lists them."
        ),
    ] = "paper",
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Seeds 0, 1, … of each; by default 20, of BBB 10, of some variants 5."
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="At most, instead of each method's own number.")
    ] = None,
    results: Results = Path("results"),
    executor: Annotated[
        Executor, typer.Option(help="Processes of this machine, or a Ray cluster (RAY_ADDRESS).")
    ] = Executor.local,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one for each core.")
    ] = None,
    again: Annotated[
        bool, typer.Option(help="Replace records; if interrupted, it starts over.")
    ] = False,
) -> None:
    """Tables of regression on UCI data: VBLL and every baseline.

    By default the paper's ten methods, in about four hours on two cores. Others run when they are
    named: our configuration, variants of it and of the paper's, and VBLL with the last layer of the
    authors' own package (pip install -e '.[authors]').

    Runs that have a record are not run again, and an interrupted run goes on where it was: just
    give the same command again. `report` turns the records into tables.
    """
    from . import jobs, uci
    from .methods import METHODS
    from .published import UCI

    published = {method for method, _, _ in UCI}
    paper = [name for name in METHODS if name in published]
    chosen = _names(datasets, list(data.NAMES), "data sets")
    names = _names(methods, list(METHODS), "methods", paper=paper)
    try:
        planned = uci.plan(chosen, names, seeds, results, epochs, again)
        console.print(f"{sum(len(job.seeds) for job in planned)} runs to do, {len(planned)} jobs")
        errors = (
            jobs.run_all(uci.run, planned, executor=executor.value, num_workers=workers)
            if planned
            else []
        )
    except (FileNotFoundError, ValueError, ImportError) as error:
        _stop(error)
    for message in errors:
        console.print(f"failed: {message}", style="red", markup=False, highlight=False)
    console.print(f"The records are in {results / 'uci'}; tables: python -m experiments report")
    raise typer.Exit(1 if errors else 0)


@app.command()
def report(results: Results = Path("results")) -> None:
    """The page of results: ours beside the paper's, and figures."""
    from . import report

    console.print(f"Written to {report.write(results)}")


@app.command()
def methods() -> None:
    """The methods of the UCI tables, and what they are."""
    from .methods import METHODS

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "label", "passes", "what it is"):
        table.add_column(column)
    in_module = Counter(method.__module__ for method in METHODS.values())
    for name, method in METHODS.items():
        source = method if in_module[method.__module__] > 1 else sys.modules[method.__module__]
        summary = (source.__doc__ or "").strip().splitlines()[0].removeprefix(f"{method.label}: ")
        passes = "single" if method.single_pass else "multi"
        table.add_row(name, method.label, passes, summary)
    console.print(table)


@app.command()
def download(
    folder: Annotated[
        Path | None, typer.Option(help="By default LASTLAYER_DATA, else `data`.")
    ] = None,
    datasets: DataSets = "all",
) -> None:
    """Fetch the UCI data sets from their sources, as CSV files."""
    from .datasets.download import fetch

    try:
        fetch(folder or data.root(), _names(datasets, list(data.NAMES), "data sets"))
    except (RuntimeError, ImportError) as error:
        _stop(error, code=1)


def _script(name: str) -> None:
    """Add an experiment that is a script with arguments of its own."""
    module = importlib.import_module(f".{name}", __package__)
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

    def command(context: typer.Context) -> None:
        try:
            module.main(context.args)
        except FileNotFoundError as error:
            _stop(error)

    command.__doc__ = module.__doc__
    app.command(name, context_settings=passed_on)(command)


for script in ("toy", "regularizers", "hyperparameters", "splits"):
    _script(script)


if __name__ == "__main__":
    app()
