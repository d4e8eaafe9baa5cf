"""Sentiment of film reviews: accuracy, NLL and ECE of every method by the number of reviews."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from ..harness import command
from ..harness.jobs import Experiment
from . import tuning
from .methods import METHODS, OURS, PAPER, SIZES
from .task import ACCURACY, NLL, SentimentTask, task

FEATURES = "minilm"


def _task(features: str, column: str, seed: int, method: Any) -> SentimentTask:
    return task(features, SIZES[column], seed)


def experiment(features: str = FEATURES) -> Experiment:
    """The experiment on the features of some encoder."""
    return Experiment(
        name="text",
        columns={name: {"dataset": features, "n": size} for name, size in SIZES.items()},
        option="sizes",
        entries=METHODS,
        task=functools.partial(_task, features),
        num_data=SIZES.__getitem__,
        packages=("laplace-torch", "scikit-learn", "vbll"),
    )


EXPERIMENT = experiment()


def text(
    sizes: Annotated[
        str, typer.Option(help=f"Numbers of reviews, of {', '.join(SIZES)}, with commas; or all.")
    ] = "all",
    methods: Annotated[
        str,
        typer.Option(
            help=f"Of {', '.join(METHODS)}, with commas; paper, ours, peers, all, or installed, "
            "those whose packages are there."
        ),
    ] = "installed",
    seeds: command.Seeds = None,
    epochs: command.Epochs = None,
    results: command.Results = Path("results"),
    executor: command.Where = command.Executor.local,
    workers: command.Workers = None,
    again: command.Again = False,
    features: Annotated[
        str, typer.Option(help="Of imdb/NAME_embeddings.npz in the folder of data.")
    ] = FEATURES,
    tune: Annotated[
        bool, typer.Option(help="Tune learning rates and weight decays instead, and record it.")
    ] = False,
    embed: Annotated[
        bool, typer.Option(help="Compute features from the reviews instead, by --model.")
    ] = False,
    model: Annotated[
        str,
        typer.Option(
            help="minilm, a sentence encoder; or the name or folder of a causal model of Hugging "
            "Face, whose last layer at the last token is kept, as in the paper."
        ),
    ] = FEATURES,
    max_tokens: Annotated[
        int, typer.Option(min=2, help="With --embed: of a review, whose rest is cut off.")
    ] = 256,
) -> None:
    """The paper's sentiment classification: VBLL, an MLP and others by the number of reviews.

    IMDB reviews, on features of a language model. Runs that have a record are not run again:
    after an interruption, give the same command again. `report` turns the records into a page.

    The features are computed once, by `--embed` (pip install -e '.[text]'), from the reviews in
    the folder of data; that too goes on where it was interrupted.
    """
    try:
        if embed:
            from .embed import write

            command.console.print(f"Written to {write(model, max_tokens)}")
            return
        if tune:
            tuning.tune(features, results)
            for metric in (ACCURACY, NLL):
                command.console.print(f"By {metric.name}: {tuning.chosen(results, metric)}")
            return
    except (FileNotFoundError, ValueError, ImportError, OSError) as error:
        command.stop(error)
    groups = {
        "paper": list(PAPER),
        "ours": list(OURS),
        "peers": [name for name in METHODS if name not in (*PAPER, *OURS)],
        "installed": command.installed(EXPERIMENT),
    }
    command.run(
        experiment(features),
        command.names(sizes, list(SIZES), "sizes"),
        command.names(methods, list(METHODS), "methods", **groups),
        results,
        seeds,
        epochs,
        executor,
        workers,
        again,
    )
