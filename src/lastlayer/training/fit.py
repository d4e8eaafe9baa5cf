"""`fit` and `fit_many`: one training loop for one model or many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from .._data import Data
from .history import History
from .options import Options
from .run import run
from .schedules import Schedule


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
    groups: Mapping[str, Mapping[str, float]] | None = None,
    augment: Callable[[Any], Any] | None = None,
    precision: str = "full",
    monitor: Callable[[nn.Module], Mapping[str, float]] | None = None,
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
    A model that is sharded by FSDP2 (`fully_shard` of the model, its backbone or its head) is
    trained as it is, and stays sharded.

    If the loss is not finite, training ends with a FloatingPointError, and the model has its best
    weights, or without validation those of the last epoch with a finite loss.

    Args:
        model: a `Network`, a head on given features, or any module with the same two calls.
        train: (inputs, target) or (inputs, target, weight), as a tuple of tensors, a Dataset of
            such examples, or a DataLoader or another iterable of such batches.
        validation: likewise. With it the model ends with the weights that had the lowest
            validation NLL.
        epochs: maximum number of epochs.
        batch_size: of tensors and Datasets; an iterable has its own.
        learning_rate: maximum, by which the schedule is multiplied.
        weight_decay: of the backbone; heads and variational layers have priors of their own.
        clip: maximum norm of the gradient; None for no limit.
        schedule: of the learning rate, "constant", "cosine", "warmup_cosine" or "one_cycle", or a
            function from the fraction of training done to a factor, as `lastlayer.training.warmup`
            and `one_cycle` make them.
        optimizer: a function of parameter groups and `lr`, as `torch.optim.SGD` is; AdamW.
        groups: by pattern, what `learning_rate` and `weight_decay` are multiplied by for the
            parameters of that name, or of modules of that name, as {"backbone":
            {"learning_rate": 0.1}} or {"*.norm.bias": {"weight_decay": 0}}. The first pattern
            that fits a name counts.
        augment: a function of the inputs of a training batch, on the model's device, that returns
            what to train on in their place: random flips and shifts of images. It should draw
            from torch's random numbers, which are seeded anew in each epoch, so that a resumed
            run draws the same.
        precision: "full", or mixed with "bfloat16" or "float16".
        monitor: a function of the model, in evaluation mode, whose numbers are added to the
            history and the progress bar, wherever there would be a validation: a score of
            out-of-distribution inputs, say, which needs no labels. It does not change training.
        validate_every: epochs between validations, and between calls of `monitor`.
        patience: stop at a validation this many epochs after the best one; None for never.
        retrain: choose the number of epochs on the validation data, then train again from the
            initial weights for as many epochs on training and validation data together, along
            the same schedule; the `num_data` of heads, and of other modules that have one, grows
            with them.
        initialize: whether a new head is initialised from the data (`Head.prepare`): a regression
            head at the scale of the targets. Generative heads always count the classes again.
        seed: of the order of the examples and of random layers. A DataLoader's own generator
            is seeded by it too.
        device: to move the model and the data to; that of the model.
        compile: whether to compile the step (`torch.compile`).
        checkpoint: a folder in which training is saved, and from which it is resumed, exactly as
            if it had not been interrupted; the same for all processes. It is an error if the
            model, the data or the options differ from those that were saved.
        checkpoint_every: epochs between checkpoints.
        progress: whether to show a progress bar; None for where there is a terminal.

    Returns:
        What happened in each epoch.
    """
    options = Options.of(locals())
    return run([model], [train], [validation], options, [seed], together=False)[0]


def fit_many(  # noqa: D417 (the options are those of fit)
    models: Sequence[nn.Module],
    train: Data | Sequence[Data],
    validation: Data | Sequence[Data] | None = None,
    *,
    seeds: Sequence[int] | None = None,
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
    device: torch.device | str | None = None,
    compile: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    progress: bool | None = None,
) -> list[History]:
    """Train many models of one architecture at once, as one batched model.

    Each has its own weights, data, order of the examples and end of training, and comes out as
    `fit` would train it, up to rounding, and up to the random numbers of random layers. What is
    neither a parameter nor a buffer changed in place is that of the first model. A model whose
    loss is not finite stops with a warning, and has the weights that `fit` would leave.

    Args:
        models: all alike but for their weights.
        train: (inputs, target) or (inputs, target, weight), a tuple of tensors; or a list with
            one for each model, all of the same shapes.
        validation: likewise.
        seeds: one for each model; 0, 1, 2 and so on.
        optimizer: as in `fit`, where all the other options are explained too. It must work on each
            number by itself, as SGD, Adam and AdamW do, and Adafactor does not, or know of
            `stacked` groups, as SOAP does.

    Returns:
        What happened in each epoch, for each model.
    """
    options, models = Options.of(locals()), list(models)
    if not models:
        raise ValueError("there are no models to train")
    if len(set(map(id, models))) < len(models):
        raise ValueError("the models must be different objects, and one is there twice")
    numbers = [int(seed) for seed in (range(len(models)) if seeds is None else seeds)]
    count = len(models)
    return run(
        models, _each(train, count), _each(validation, count), options, _each(numbers, count)
    )


def _each(data: Any, count: int) -> list[Any]:
    """One item for each model."""
    if not isinstance(data, list):
        return [data] * count
    if len(data) != count:
        raise ValueError(f"there are {count} models, but a list of {len(data)}")
    return data
