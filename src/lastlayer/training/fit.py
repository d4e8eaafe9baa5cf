"""`fit` and `fit_many`: one training loop for one model or many."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from .._checks import check_choice
from .._data import Data, digest, has_own_batches, num_examples
from .history import History
from .loop import Engine, Loop, own_random_numbers
from .many import ManyModels
from .one import OneModel
from .options import Options, Schedule
from .processes import Processes
from .start import check_training_data, counting, initial_state, joined, prepare


def fit(
    model: nn.Module,
    train: Data,
    validation: Data | None = None,
    *,
    epochs: int = 100,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    weight_decay: float = 0.01,
    clip: float | None = 1.0,
    schedule: str | Schedule = "constant",
    optimizer: Callable[..., Optimizer] | None = None,
    precision: str = "full",
    validate_every: int = 1,
    patience: int | None = None,
    retrain: bool = False,
    initialize: bool = True,
    seed: int = 0,
    device: torch.device | str | None = None,
    compile: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    progress: bool | None = None,
) -> History:
    """Train a model by the gradient of its loss.

    Under `torchrun` all processes train the model together: `batch_size` is that of all of them,
    and losses and weights are those of one process, unless layers are random or, as a batch norm
    is, depend on the other examples of the batch. A DataLoader then needs a DistributedSampler.

    Args:
        model: a `Network`, a head on given features, or any module with the same two calls.
        train: (inputs, target) or (inputs, target, weight), as a tuple of tensors, a Dataset of
            such examples, or a DataLoader or another iterable of such batches.
        validation: likewise. With it the model ends with the weights that had the lowest
            validation NLL.
        epochs: at most.
        batch_size: of tensors and Datasets; an iterable has its own.
        learning_rate: at its highest.
        weight_decay: of the backbone; heads and variational layers have priors of their own.
        clip: largest norm of the gradient; None for no limit.
        schedule: of the learning rate, "constant", "cosine" or "warmup_cosine", or a function
            from the fraction of training done to a factor.
        optimizer: a function of parameter groups and `lr`, as `torch.optim.SGD` is; AdamW.
        precision: "full", or mixed with "bfloat16" or "float16".
        validate_every: so many epochs.
        patience: stop at a validation so many epochs after the best; None for never.
        retrain: choose the number of epochs on the validation data, then start again and train
            for as many epochs on training and validation data together, along the same
            schedule; the `num_data` of heads, and of other modules that have one, grows with them.
        initialize: start a regression head that is still as it was made at the scale of the
            targets (`Regression.initialize`). Generative heads always count the classes anew.
        seed: of the order of the examples and of random layers. A DataLoader's own generator
            is seeded by it too.
        device: to move the model and the data to; that of the model.
        compile: let `torch.compile` make the step faster, after a while.
        checkpoint: a folder in which training is saved, and from which it goes on, exactly as
            if it had not been interrupted; for all processes the same.
        checkpoint_every: so many epochs.
        progress: whether to show a progress bar; None for where there is a terminal.

    Returns:
        What happened in each epoch.
    """
    options = Options(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        clip=clip,
        schedule=schedule,
        optimizer=optimizer,
        precision=precision,
        validate_every=validate_every,
        patience=patience,
        retrain=retrain,
        initialize=initialize,
        seed=seed,
        device=device,
        compile=compile,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        progress=progress,
    )
    return _fit([model], [train], [validation], options, [seed], one=True)[0]


def fit_many(
    models: Sequence[nn.Module],
    train: Data | Sequence[Data],
    validation: Data | Sequence[Data] | None = None,
    *,
    seeds: Sequence[int] | None = None,
    **options: Any,
) -> list[History]:
    """Train many models of one architecture at once, as one batched model.

    Each has its own weights, data, order of the examples and end of training, and comes out as
    `fit` would train it, up to rounding, and up to the random numbers of random layers. What is
    neither a parameter nor a buffer changed in place is that of the first model.

    Args:
        models: all alike but for their weights.
        train: (inputs, target) or (inputs, target, weight), a tuple of tensors; or a list with
            one for each model, all of the same shapes.
        validation: likewise.
        seeds: one for each model; 0, 1, 2 and so on.
        options: those of `fit`. The optimiser must work on each number by itself, as SGD, Adam
            and AdamW do, and Adafactor does not, or know of `stacked` groups, as SOAP does.
            Two more are for calls that are parts of something larger: `label`, what the progress
            bar says instead of losses, and then it vanishes at the end; and `traces`, a dict that
            keeps what takes time to record of a step, for more calls with models that differ from
            these in nothing but their tensors.

    Returns:
        What happened in each epoch, for each model.
    """
    models = list(models)
    if not models:
        raise ValueError("there are no models to train")
    for name in options:
        check_choice("option", name, [field.name for field in dataclasses.fields(Options)])
    if "seed" in options:
        raise TypeError("many models have seeds, one for each; pass seeds=, not seed=")
    if any(repr(model) != repr(models[0]) for model in models):
        raise ValueError("the models must be alike but for their weights; train them one by one")
    if len(set(map(id, models))) < len(models):
        raise ValueError("the models must be different objects, and one is there twice")
    seeds = [int(seed) for seed in (range(len(models)) if seeds is None else seeds)]
    chosen = Options(**options)
    each = [_each(data, len(models)) for data in (train, validation, seeds)]
    return _fit(models, each[0], each[1], chosen, each[2], one=False)


def _each(data: Any, count: int) -> list[Any]:
    """One for each model."""
    if not isinstance(data, list):
        return [data] * count
    if len(data) != count:
        raise ValueError(f"there are {count} models, but a list of {len(data)}")
    return data


def _fit(
    models: Sequence[nn.Module],
    train: list[Any],
    validation: list[Any],
    options: Options,
    seeds: list[int],
    *,
    one: bool,
) -> list[History]:
    validated = validation[0] is not None
    if options.retrain and not validated:
        raise ValueError("retrain chooses the number of epochs on validation data; pass some")
    if options.patience is not None and not validated:
        raise ValueError("patience is about the validation NLL; pass validation data")
    for model in models:
        _check_model(model)
        if options.device is not None:
            model.to(options.device)
    processes = Processes(next(models[0].parameters()).device)
    for data in train:
        check_training_data(data, processes)
    everything = list(map(joined, train, validation)) if options.retrain else train
    modes = [(module, module.training) for model in models for module in model.modules()]

    def make_engine(phase: int, initial: list[Any], start: bool) -> Engine:
        data: list[Any] = everything if phase == 1 else train
        for at, model in enumerate(models):
            for module, size in zip(counting(model), initial[at]["num_data"], strict=True):
                growth = num_examples(data[at]) / num_examples(train[at]) if phase == 1 else 1
                module.num_data = growth * size
            if start:
                prepare(model, initial[at], data[at], options, seeds[at], processes)
        if one:
            return OneModel(models[0], data[0], validation[0], options, phase, processes)
        return ManyModels(models, data, validation if validated else None, options, seeds, phase)

    initial = list(map(initial_state, models))
    loop = Loop(make_engine, initial, options, validated, processes.first)
    fingerprint = options.fingerprint() | {
        "models": "one" if one else len(models),
        "weights": {name: list(value.shape) for name, value in models[0].state_dict().items()},
        "seeds": seeds,
        "training examples": _size(train[0]),
        "validation examples": _size(validation[0]) if validated else None,
    }
    if options.checkpoint is not None:
        fingerprint["digest of the data"] = digest([*train, *validation])
    try:
        with own_random_numbers():
            loop.run(fingerprint, processes.wait)
    except FloatingPointError:
        models[0].load_state_dict(loop.trainees[0].state or loop.initial[0]["state"])
        raise
    finally:
        for module, training in modes:
            module.training = training
    for model, trainee in zip(models, loop.trainees, strict=True):
        model.load_state_dict(trainee.state or {})
    processes.wait()
    return [trainee.history for trainee in loop.trainees]


def _check_model(model: nn.Module) -> None:
    if isinstance(model, DistributedDataParallel):
        raise TypeError("pass the bare model: fit lets the processes train together by itself")
    if next(model.parameters(), None) is None:
        raise ValueError("the model has no parameters to train")


def _size(data: Data) -> int | None:
    return None if has_own_batches(data) else num_examples(data)
