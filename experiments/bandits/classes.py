"""Bandits made of real tables: the experiment, its command and its page."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from ..harness import command, provenance, sections
from ..harness.jobs import Experiment
from ..harness.statistics import Runs
from .methods import METHODS
from .real import BAD, GOOD, TABLES, TableTask
from .task import CUMULATIVE, LAST, SIMPLE

NUM_CONTEXTS, NUM_SEEDS = 2_000, 10
NAMES = ("ours", "vbll", "neural-linear", "lin-full-post", "lin-diag-post", "uniform")
# Rewards in units of the largest, as on the wheel; all else is as there.
OWN: dict[str, dict[str, Any]] = {
    "ours": {
        "reward_scale": {name: table.scale for name, table in TABLES.items()},
        "squared": False,  # which is for the wheel's round boundary
        "steps": 500,
        "batch_size": 512,
        "passes": 0.0,
        "undo": False,
        "learning_rate": 3e-3,
        "epsilon": 1e-8,
        "weight_decay": 0.01,
        "schedule": "cosine",
    }
}

PAGE = f"""\
# Bandits of real tables

Written by `python -m experiments report` from the records in this folder, one line per run; do not
edit. `python -m experiments classes` makes the records, and runs only what has none.

Two tables that come with scikit-learn, in the manner of Riquelme, Tucker & Snoek (2018), whose own
are not in this repository: {NUM_CONTEXTS:,} contexts, the rows in random order, again and again.
Digits: ten arms, of which that of the digit pays 1, the others 0. Cancer: one arm pays nothing, the
other {GOOD:.0f} for a benign tumour, and for a malignant one {GOOD:.0f} or {BAD:.0f} with equal
probability, as their mushrooms do.

Regrets are differences of mean rewards in percent of an arm at random: cumulative ones of all
contexts, simple ones of the last {LAST}. Mean ± standard error over seeds. **Bold** are the best
and those less than one standard error (the best's) behind it."""


def _task(column: str, seed: int, method: Any) -> TableTask:
    return TableTask(seed=seed, table=column, num_contexts=method.num_contexts)


EXPERIMENT = Experiment(
    name="classes",
    columns={name: {"dataset": name} for name in TABLES},
    entries={
        name: dataclasses.replace(
            METHODS[name],
            settings={**METHODS[name].settings, **OWN.get(name, {}), "num_contexts": NUM_CONTEXTS},
            num_seeds=dict.fromkeys(TABLES, NUM_SEEDS),
            together=dict.fromkeys(TABLES, 1),
        )
        for name in NAMES
    },
    task=_task,
    num_data=lambda _: NUM_CONTEXTS,
)


def classes(
    datasets: Annotated[
        str, typer.Option(help=f"Of {', '.join(TABLES)}, with commas; or all.")
    ] = "all",
    methods: Annotated[
        str, typer.Option(help=f"Of {', '.join(NAMES)}, with commas; or all.")
    ] = "all",
    seeds: command.Seeds = None,
    results: command.Results = Path("results"),
    executor: command.Where = command.Executor.local,
    workers: command.Workers = None,
    again: command.Again = False,
) -> None:
    """Bandits made of real tables with classes: regrets of every agent.

    Runs that have a record are not run again: after an interruption, give the same command again.
    `report` turns the records into a page.
    """
    command.run(
        EXPERIMENT,
        command.names(datasets, list(TABLES), "datasets"),
        command.names(methods, list(NAMES), "methods"),
        results,
        seeds,
        executor=executor,
        workers=workers,
        again=again,
    )


def page(runs: Runs) -> str:
    """The whole page, Markdown."""
    methods = [method for method in runs.main if runs.has(method)]
    parts = [
        PAGE,
        f"## Cumulative regret\n\n{sections.metric_table(runs, methods, CUMULATIVE)}",
        f"## Simple regret\n\n{sections.metric_table(runs, methods, SIMPLE)}",
        "## Settings\n\nThose of the [wheel](../bandits/README.md), but ours has rewards in "
        "units of the largest, and the network and trainings that it had before those of the "
        "wheel were chosen: on digits (seed 100) they do better.\n\n"
        + provenance.settings(runs, EXPERIMENT),
        f"## Time\n\n{provenance.times(runs, {'all agents': list(runs.methods)})}",
        f"## Missing\n\n{provenance.missing(runs, EXPERIMENT)}",
    ]
    return "\n\n".join(parts) + "\n"


def headline(runs: Runs) -> str:
    """A line for the index."""
    parts = []
    for column in runs.columns:
        found = {m: runs.estimate(m, column, CUMULATIVE.name) for m in runs.methods}
        known = {method: cell.mean for method, cell in found.items() if cell is not None}
        if known:
            best = min(known, key=known.__getitem__)
            parts.append(f"{runs.methods[best].label} on {column}")
    return f"bandits of real tables; the lowest cumulative regret has {', '.join(parts)}."


def write(results: Path) -> str | None:
    """Write the page; a headline for the index, or None without records."""
    return sections.publish(EXPERIMENT, results, page, headline)
