"""The paper's wheel bandit: cumulative and simple regret of every agent by δ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..harness import command
from ..harness.jobs import Experiment
from .methods import METHODS
from .published import COLUMNS
from .wheel import WheelTask

LINEAR = ["lin-full-post", "lin-diag-post", "lin-post-mr", "uniform"]


def _task(column: str, seed: int, method: Any) -> WheelTask:
    return WheelTask(seed=seed, delta=float(column), num_contexts=method.num_contexts)


EXPERIMENT = Experiment(
    name="bandits",
    columns={column: {"dataset": "wheel", "delta": float(column)} for column in COLUMNS},
    option="deltas",
    entries=METHODS,
    task=_task,
    num_data=lambda _: 80_000,
)


def bandits(
    deltas: Annotated[
        str, typer.Option(help=f"Of {', '.join(COLUMNS)}, with commas; or all.")
    ] = "all",
    methods: Annotated[
        str, typer.Option(help=f"Of {', '.join(METHODS)}, with commas; linear, neural or all.")
    ] = "all",
    seeds: command.Seeds = None,
    contexts: Annotated[
        int | None, typer.Option(min=1, help="Instead of 80,000, for a quick look.")
    ] = None,
    results: command.Results = Path("results"),
    executor: command.Where = command.Executor.local,
    workers: command.Workers = None,
    again: command.Again = False,
) -> None:
    """The paper's wheel bandit: cumulative and simple regret of every agent.

    Runs that have a record are not run again: after an interruption, give the same command again.
    `report` turns the records into a page.
    """
    groups = {"linear": LINEAR, "neural": [name for name in METHODS if name not in LINEAR]}
    command.run(
        EXPERIMENT,
        command.names(deltas, list(COLUMNS), "deltas"),
        command.names(methods, list(METHODS), "methods", **groups),
        results,
        seeds,
        executor=executor,
        workers=workers,
        again=again,
        num_contexts=contexts,
    )
