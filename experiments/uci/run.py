"""Regression on six UCI data sets: NLL, RMSE, CRPS, coverage and width of every method."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from ..datasets import folder
from ..datasets import uci as data
from ..harness import command
from ..harness.jobs import Experiment
from .methods import METHODS
from .published import PUBLISHED
from .task import task

DataSets = Annotated[str, typer.Option(help=f"Of {', '.join(data.NAMES)}, with commas; or all.")]


def num_data(dataset: str) -> int:
    """The number of rows of a data set, read once."""
    return _num_data(dataset, folder.root())


@functools.cache
def _num_data(dataset: str, root: Path) -> int:
    return len(data.load(dataset)[1])


EXPERIMENT = Experiment(
    name="uci",
    columns={name: {"dataset": name} for name in data.NAMES},
    entries=METHODS,
    task=task,
    num_data=num_data,
    packages=("gpytorch", "scipy", "vbll"),
)


def uci(
    datasets: DataSets = "all",
    methods: Annotated[
        str,
        typer.Option(
            help="Names with commas; paper, its ten; or all. `experiments methods` lists them."
        ),
    ] = "paper",
    seeds: command.Seeds = None,
    epochs: command.Epochs = None,
    results: command.Results = Path("results"),
    executor: command.Where = command.Executor.local,
    workers: command.Workers = None,
    again: command.Again = False,
) -> None:
    """The paper's tables of regression: VBLL and every baseline.

    On six UCI data sets. By default the paper's ten methods, in about four hours on two cores.
    Others run when they are named: our configuration, variants of it and of the paper's, and VBLL
    with the last layer of the authors' own package (pip install -e '.[authors]').

    Runs that have a record are not run again, and an interrupted run goes on where it was: just
    give the same command again. `report` turns the records into tables.
    """
    published = {method for method, _, _ in PUBLISHED.cells}
    paper = [name for name in METHODS if name in published]
    command.run(
        EXPERIMENT,
        command.names(datasets, list(data.NAMES), "data sets"),
        command.names(methods, list(METHODS), "methods", paper=paper),
        results,
        seeds,
        epochs,
        executor,
        workers,
        again,
    )


def download(
    to: Annotated[
        Path | None, typer.Option("--folder", help="By default LASTLAYER_DATA, else `data`.")
    ] = None,
    datasets: DataSets = "all",
) -> None:
    """Fetch the UCI data sets from their sources, as CSV files."""
    from ..datasets.download import fetch

    try:
        fetch(to or folder.root(), command.names(datasets, list(data.NAMES), "data sets"))
    except (RuntimeError, ImportError) as error:
        command.stop(error, code=1)
