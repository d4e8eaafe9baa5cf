"""Images: accuracy, calibration and out-of-distribution detection of every method."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ..datasets import images as data
from ..harness import command, networks
from ..harness.jobs import Experiment
from . import ablation as kl_weights
from . import estimate as estimates
from . import timing as times
from .methods import DATASETS, NUM_TRAIN, PAPER, methods_of
from .task import BACKBONES, ImageTask, task


def _task(backbone: str, column: str, seed: int, method: Any) -> ImageTask:
    return task(column, backbone, seed, networks.folder())


def experiment(backbone: str = "small") -> Experiment:
    """The experiment with a backbone."""
    return Experiment(
        name="images",
        columns={name: {"dataset": name, "backbone": backbone} for name in DATASETS},
        entries=methods_of(backbone),
        task=functools.partial(_task, backbone),
        num_data=NUM_TRAIN.__getitem__,
        packages=("laplace-torch",),
        threads=1 if backbone == "small" else None,
    )


EXPERIMENT = experiment()


def images(
    datasets: Annotated[
        str, typer.Option(help=f"Of {', '.join(DATASETS)}, with commas; or all.")
    ] = "all",
    methods: Annotated[
        str,
        typer.Option(
            help=f"Of {', '.join(EXPERIMENT.entries)}, with commas; paper, all, or "
            "installed, those whose packages are there."
        ),
    ] = "installed",
    seeds: command.Seeds = None,
    epochs: command.Epochs = None,
    results: command.Results = Path("results"),
    executor: command.Where = command.Executor.local,
    workers: command.Workers = None,
    again: command.Again = False,
    backbone: Annotated[str, typer.Option(help=f"Of {', '.join(BACKBONES)}.")] = "small",
    ablation: Annotated[
        bool, typer.Option(help="Run the table of KL weights instead, on CIFAR-10.")
    ] = False,
    timing: Annotated[
        bool, typer.Option(help="Measure steps of VBLL beside DNN's instead, and record it.")
    ] = False,
    estimate: Annotated[
        bool, typer.Option(help="Tell time and memory of one network instead, by a small step.")
    ] = False,
    download: Annotated[
        bool, typer.Option(help="Fetch the images instead, from their authors' pages.")
    ] = False,
) -> None:
    """The paper's image classification: CIFAR-10 and CIFAR-100, and inputs of other kinds.

    Runs that have a record are not run again: after an interruption, give the same command again.
    Trained networks are kept in the folder that LASTLAYER_NETWORKS names (by default in the user's
    cache), and methods that begin with a trained network take it from there. `report` turns the
    records into a page.

    Under `torchrun` all processes train each network together.
    """
    command.names(backbone, list(BACKBONES), "backbones")
    if download:
        for path in data.fetch():
            command.console.print(f"Written to {path}")
        return
    if estimate:
        command.console.print(f"{backbone}: {estimates.estimate(backbone)}")
        return
    if timing:
        times.measure(backbone, results)
        command.console.print(f"Written to {times.path(results)}")
        return
    where: dict[str, Any] = {
        "seeds": seeds,
        "epochs": epochs,
        "executor": executor,
        "workers": 1 if "RANK" in os.environ else workers,
        "again": again,
    }
    if ablation:
        swept = kl_weights.experiment(backbone)
        command.run(swept, list(swept.columns), list(swept.entries), results, **where)
    chosen = experiment(backbone)
    groups = {
        "paper": list(PAPER),
        "installed": command.installed(chosen),
    }
    command.run(
        chosen,
        command.names(datasets, list(DATASETS), "data sets"),
        command.names(methods, list(chosen.entries), "methods", **groups),
        results,
        **where,
    )
