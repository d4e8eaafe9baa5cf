"""Active learning: error and NLL by the number of labels, for every way to choose them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..harness import command
from ..harness.jobs import Experiment
from .methods import BATCH, COLUMNS, INITIAL, METHODS, ROUNDS
from .problems import PoolTask, task


def _task(column: str, seed: int, method: Any) -> PoolTask:
    return task(column, seed)


EXPERIMENT = Experiment(
    name="active",
    columns={column: {"dataset": column} for column in COLUMNS},
    entries=METHODS,
    task=_task,
    num_data=lambda column: INITIAL[column] + ROUNDS[column] * BATCH[column],
    packages=("botorch",),
)


def active(
    datasets: Annotated[
        str, typer.Option(help=f"Of {', '.join(COLUMNS)}, with commas; or all.")
    ] = "all",
    methods: Annotated[
        str, typer.Option(help=f"Of {', '.join(METHODS)}, with commas; or all.")
    ] = "all",
    seeds: command.Seeds = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Instead of five or ten, for a quick look.")
    ] = None,
    results: command.Results = Path("results"),
    executor: command.Where = command.Executor.local,
    workers: command.Workers = None,
    again: command.Again = False,
) -> None:
    """Active learning: error and NLL by the number of labels, on tables, film reviews and images.

    Runs that have a record are not run again: after an interruption, give the same command again.
    `report` turns the records into a page.
    """
    command.run(
        EXPERIMENT,
        command.names(datasets, list(COLUMNS), "datasets"),
        command.names(methods, list(METHODS), "methods"),
        results,
        seeds,
        executor=executor,
        workers=workers,
        again=again,
        rounds=rounds,
    )
