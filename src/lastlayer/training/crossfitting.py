"""Hyperparameters and calibration from cross-validation: `crossfit` and `crossfit_many`."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .._checks import check_count
from .bar import SearchBar
from .budget import Budget
from .folds import CrossFit, Fold, Tensors, calibrated, held_out_predictions
from .options import Options
from .run import run
from .schedules import Schedule
from .search import Problem, Setting, alike, label, lengths, most_examples, race
from .soap import SOAP

__all__ = ["CrossFit", "Fold", "calibrated", "crossfit", "crossfit_many", "held_out_predictions"]

Make = Callable[[Tensors], nn.Module]
Job = tuple[Problem, Tensors]  # a model of the problem is to be trained on these data


def crossfit(  # noqa: D417 (the options are those of fit)
    make: Make,
    data: Tensors,
    *,
    alternatives: Sequence[Make] = (),
    example_groups: Tensor | None = None,
    seed: int = 0,
    num_folds: int = 5,
    turns: int | None = None,
    epochs: int = 2048,
    shortest: int = 16,
    growth: int = 2,
    time_limit: float | None = None,
    weight_decays: Sequence[float] = (30.0, 300.0),
    scaling: Callable[[], nn.Module] | None = None,
    batch_size: int = 32,
    learning_rate: float = 3e-3,
    clip: float | None = 1.0,
    schedule: str | Schedule = "cosine",
    optimizer: Callable[..., Optimizer] | None = SOAP,
    precision: str = "full",
    initialize: bool = True,
    device: torch.device | str | None = None,
    compile: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    progress: bool | None = None,
) -> CrossFit:
    """Choose hyperparameters and calibrate by cross-validation, then train on all the data.

    For each fold a model is trained on the rest of the data. The number of epochs doubles as long
    as the out-of-fold predictions, calibrated on themselves, become better; then another weight
    decay is tried. Where there are several models to choose from, the better half of them goes on
    each time. A model is trained with the best setting on all the data, and the calibration
    goes with it. Validation data of their own would be fewer, and lost for training.

    Args:
        make: from training data to a new model for them. Models may differ in the values of their
            parameters and buffers, and in nothing else.
        data: (inputs, target) or (inputs, target, weight), tensors.
        alternatives: functions that make other models, of any kind. All are tried with the fewest
            epochs, the better half of them with more, and so on; the best of all is trained.
        example_groups: a number for each example, (T,), where some belong together (of a patient, a
            day, a film) and the model is to predict those of others: a group is held out together.
        seed: of all random numbers.
        num_folds: number of folds.
        turns: number of folds that are used; all of them if None.
        epochs: maximum number of epochs.
        shortest: minimum number of epochs to try.
        growth: factor between numbers of epochs.
        time_limit: seconds after which to end, with the best so far. It is looked at between
            epochs; `out_of_time` of the result says whether it ended the search.
        weight_decays: of the backbone, times the number of examples, as the strength of a prior
            is. Each is tried with the best number of epochs so far, and with more if it is better.
        scaling: makes a calibration of `lastlayer.calibration`, such as `VarianceScaling`. If None
            it is `TailScaling` of independent outputs, `VarianceScaling` of other regression, and
            `TemperatureScaling` of classes.
        optimizer: as in `fit`, where all the other options are explained too.

    Returns:
        The model, its calibration, and what was tried.
    """
    given = {
        name: value
        for name, value in locals().items()
        if name not in ("make", "data", "alternatives", "example_groups", "seed")
    }
    return crossfit_many(
        [make],
        [data],
        alternatives=[alternatives],
        example_groups=[example_groups],
        seeds=[seed],
        **given,
    )[0]


def crossfit_many(  # noqa: D417 (the options are those of crossfit)
    makes: Sequence[Make],
    data: Sequence[Tensors],
    *,
    alternatives: Sequence[Sequence[Make]] | None = None,
    example_groups: Sequence[Tensor | None] | None = None,
    seeds: Sequence[int] | None = None,
    num_folds: int = 5,
    turns: int | None = None,
    epochs: int = 2048,
    shortest: int = 16,
    growth: int = 2,
    time_limit: float | None = None,
    weight_decays: Sequence[float] = (30.0, 300.0),
    scaling: Callable[[], nn.Module] | None = None,
    batch_size: int = 32,
    learning_rate: float = 3e-3,
    clip: float | None = 1.0,
    schedule: str | Schedule = "cosine",
    optimizer: Callable[..., Optimizer] | None = SOAP,
    precision: str = "full",
    initialize: bool = True,
    device: torch.device | str | None = None,
    compile: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    progress: bool | None = None,
) -> list[CrossFit]:
    """`crossfit` of many problems, whose models train together as in `fit_many`.

    Args:
        makes: for each problem, a function from training data to a new model for them.
        data: for each problem, all of the same shapes.
        alternatives: for each problem, as in `crossfit`, and for all as many.
        example_groups: for each problem, as in `crossfit`.
        seeds: one for each problem; 0, 1, 2 and so on.
        num_folds: as in `crossfit`, where all the other options are explained too.

    Returns:
        For each problem the model, its calibration, and what was tried.
    """
    options = Options.of(locals())
    check_count("num_folds", num_folds, 2)
    turns = num_folds if turns is None else turns
    check_count("turns", turns)
    if turns > num_folds:
        raise ValueError(f"turns={turns}, but there are only num_folds={num_folds} folds")
    weight_decays = tuple(weight_decays)
    if not weight_decays or min(weight_decays) < 0:
        raise ValueError(
            f"weight_decays are numbers of at least zero, got {weight_decays}; pass (0.0,) for none"
        )
    if not makes or len(makes) != len(data):
        raise ValueError(
            f"each problem has data and a function that makes models, got {len(makes)} functions "
            f"and {len(data)} data"
        )
    seeds = list(range(len(data)) if seeds is None else seeds)
    others = [()] * len(data) if alternatives is None else alternatives
    if len(others) != len(data) or len({len(functions) for functions in others}) > 1:
        raise ValueError(
            f"all {len(data)} problems must have as many alternatives, got "
            f"{[len(functions) for functions in others]}"
        )
    num_models = 1 + len(others[0])
    settings = race(weight_decays, lengths(shortest, epochs, growth), num_models)
    groups = [None] * len(data) if example_groups is None else example_groups
    problems = [
        Problem(
            [make, *functions],
            tensors,
            seed,
            Fold.of(tensors, num_folds, turns, seed, group),
            settings,
        )
        for make, functions, tensors, seed, group in zip(
            makes, others, data, seeds, groups, strict=True
        )
    ]
    budget = Budget(time_limit)
    shown = SearchBar(options.progress, most_examples(problems, num_models))
    traces = defaultdict[int, dict[Any, Any]](dict)  # of steps, alike in tries of an alternative
    with closing(shown) as bar:
        while going := alike([problem for problem in problems if problem.wants is not None]):
            if not all(map(budget.allows, going)):
                break
            started, setting = time.monotonic(), settings[going[0].wants or 0]
            _try(going, setting, options, scaling, bar, budget, traces[setting.alternative])
            budget.took(setting, time.monotonic() - started)
            bar.say(label(problems))
        for problem in problems:
            problem.check()
        for setting in settings:
            if chosen := [problem for problem in problems if problem.best.setting == setting]:
                _finish(chosen, setting, options, bar, budget, traces[setting.alternative])
    found = [problem.result() for problem in problems]
    return [dataclasses.replace(result, out_of_time=budget.exhausted) for result in found]


def _try(
    going: list[Problem],
    setting: Setting,
    options: Options,
    scaling: Callable[[], nn.Module] | None,
    bar: SearchBar,
    budget: Budget,
    traces: dict[Any, Any],
) -> None:
    """Train the models of all folds with a setting, and judge them."""
    jobs = [(problem, fold.train) for problem in going for fold in problem.folds]
    until = budget.deadline(going[0].tries)
    try:
        with warnings.catch_warnings():
            if setting.alternative:  # one that diverges is not chosen: nothing to warn of
                warnings.filterwarnings("ignore", ".*the loss became", UserWarning)
            trained = _train("try", jobs, setting, options, bar, traces, until)
    except FloatingPointError:  # of a single model
        trained = []
    budget.exhausted |= any(one.cut for one in trained)
    for problem in going:
        turns = len(problem.folds)
        folds, trained = trained[:turns], trained[turns:]
        failed = any(one.failed for one in folds)
        problem.judge([] if failed else [one.model for one in folds], scaling)


def _finish(
    chosen: list[Problem],
    setting: Setting,
    options: Options,
    bar: SearchBar,
    budget: Budget,
    traces: dict[Any, Any],
) -> None:
    """Train the models of all the data; without time for it, those of the first folds stay."""
    for problem in chosen:
        problem.model = problem.best.models[0]
    if not all(map(budget.leaves_all_data, chosen)):
        return
    bar.say("training on all data")
    jobs = [(problem, problem.data) for problem in chosen]
    trained = _train("whole", jobs, setting, options, bar, traces, budget.end)
    for problem, one in zip(chosen, trained, strict=True):
        if one.cut:
            budget.exhausted = True
        else:
            problem.model = one.model


class Trained(NamedTuple):
    """A model after training, and whether that failed, or was cut short."""

    model: nn.Module
    failed: bool
    cut: bool


def _train(
    name: str,
    jobs: list[Job],
    setting: Setting,
    options: Options,
    bar: SearchBar,
    traces: dict[Any, Any],
    deadline: float,
) -> list[Trained]:
    """New models, trained."""
    models = [problem.new(tensors, setting.alternative) for problem, tensors in jobs]
    folder = f"{name}-{setting.weight_decay:g}-{setting.epochs}"
    folder += f"-{setting.alternative}" if setting.alternative else ""
    changed = dataclasses.replace(
        options,
        epochs=setting.epochs,
        weight_decay=setting.weight_decay / len(jobs[0][1][0]),
        checkpoint=options.checkpoint and Path(options.checkpoint) / folder,
    )
    histories = run(
        models,
        [tensors for _, tensors in jobs],
        [None for _ in jobs],
        changed,
        [problem.seed for problem, _ in jobs],
        bar=bar,
        traces=traces,
        deadline=deadline,
    )
    return [
        Trained(model.eval(), h.failed, not h.failed and len(h) < setting.epochs)
        for model, h in zip(models, histories, strict=True)
    ]
