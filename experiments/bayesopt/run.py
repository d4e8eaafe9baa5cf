"""Bayesian optimisation of the published tasks, by every surrogate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..harness import command
from ..harness.jobs import Experiment
from .methods import METHODS
from .tasks import PROBLEMS, OptimisationTask


def _task(column: str, seed: int, method: Any) -> OptimisationTask:
    return OptimisationTask(seed=seed, problem=column)


EXPERIMENT = Experiment(
    name="bayesopt",
    columns={name: {"dataset": name} for name in PROBLEMS},
    option="tasks",
    entries=METHODS,
    task=_task,
    num_data=lambda name: PROBLEMS[name].rounds * PROBLEMS[name].batch,
    packages=("botorch", "gpytorch", "scipy"),
)


def bayesopt(
    tasks: Annotated[
        str, typer.Option(help=f"Of {', '.join(PROBLEMS)}, with commas; or all.")
    ] = "all",
    methods: Annotated[
        str, typer.Option(help=f"Of {', '.join(METHODS)}, with commas; or all.")
    ] = "all",
    seeds: command.Seeds = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Instead of the published number, for a quick look.")
    ] = None,
    results: command.Results = Path("results"),
    executor: command.Where = command.Executor.local,
    workers: command.Workers = None,
    again: command.Again = False,
) -> None:
    """Bayesian optimisation: surrogates on published tasks, all by Thompson sampling.

    Needs botorch (pip install -e '.[botorch,experiments]'). Runs that have a record are not run
    again: after an interruption, give the same command again. `report` turns the records into a
    page.
    """
    command.run(
        EXPERIMENT,
        command.names(tasks, list(PROBLEMS), "tasks"),
        command.names(methods, list(METHODS), "methods"),
        results,
        seeds,
        executor=executor,
        workers=workers,
        again=again,
        rounds=rounds,
    )
