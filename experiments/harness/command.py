"""The command line that experiments share: names, options, and running what has no record."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from . import executors, jobs
from .jobs import Experiment

console = Console()


class Executor(str, Enum):
    """Where jobs run."""

    local = "local"
    ray = "ray"


Results = Annotated[Path, typer.Option(help="Folder of the records.", file_okay=False)]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="Seeds 0, 1, … of each; by default each method's own.")
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="The maximum, instead of each method's own.")
]
Where = Annotated[
    Executor, typer.Option(help="Processes of this machine, or a Ray cluster (RAY_ADDRESS).")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes; by default one for each core.")
]
Again = Annotated[bool, typer.Option(help="Replace records; if interrupted, it begins anew.")]


def names(text: str, known: list[str], what: str, **groups: list[str]) -> list[str]:
    """Names from a list with commas, in which a group stands for some, and "all" for all."""
    groups["all"] = known
    parts = [part.strip() for part in text.split(",") if part.strip()]
    found = list(dict.fromkeys(name for part in parts for name in groups.get(part, [part])))
    wrong = [name for name in found if name not in known]
    if wrong or not found:
        choices = ", ".join([*known, *groups])
        raise typer.BadParameter(
            f"unknown {what}: {', '.join(wrong) or 'none given'}; choose from {choices}"
        )
    return found


def stop(error: Exception, code: int = 2) -> NoReturn:
    """Say what is wrong, and what to do, without a traceback."""
    console.print(str(error), style="red", markup=False, highlight=False)
    raise typer.Exit(code) from None


def run(
    experiment: Experiment,
    columns: list[str],
    methods: list[str],
    results: Path,
    seeds: int | None = None,
    epochs: int | None = None,
    executor: Executor = Executor.local,
    workers: int | None = None,
    again: bool = False,
    **changes: Any,
) -> NoReturn:
    """Run what has no record, and end the program: with code 1 if something failed.

    Changes are settings of all methods that differ from their own; those that are None do not.
    """
    changes = {k: v for k, v in (changes | {"epochs": epochs}).items() if v is not None}
    try:
        planned = jobs.plan(experiment, columns, methods, results, seeds, again, **changes)
        console.print(f"{sum(len(job.seeds) for job in planned)} runs to do, {len(planned)} jobs")
        options: dict[str, Any] = {"executor": executor.value, "num_workers": workers}
        errors = executors.run_all(jobs.run, planned, **options) if planned else []
    except (FileNotFoundError, ValueError, ImportError) as error:
        stop(error)
    for message in errors:
        console.print(f"failed: {message}", style="red", markup=False, highlight=False)
    folder = results / experiment.name
    console.print(f"The records are in {folder}; pages: python -m experiments report")
    raise typer.Exit(1 if errors else 0)


def installed(experiment: Experiment) -> list[str]:
    """The methods whose packages are there."""
    column = next(iter(experiment.columns))
    found = []
    for name, entry in experiment.entries.items():
        try:
            entry.configured(column)
        except ImportError:
            continue
        found.append(name)
    return found


def list_methods(experiment: Experiment) -> None:
    """Print the methods of an experiment, a line each."""
    table = Table("name", "label", "passes", "what it is", box=None, padding=(0, 2, 0, 0))
    for name, entry in experiment.entries.items():
        passes = "single" if entry.method.single_pass else "multi"
        table.add_row(name, entry.title, passes, entry.summary)
    console.print(table)


def summary(command: Callable[..., Any]) -> str:
    """The first line of what a command says about itself."""
    return (command.__doc__ or "").strip().splitlines()[0]
