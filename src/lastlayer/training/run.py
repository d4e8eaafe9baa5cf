"""What `fit`, `fit_many` and `crossfit` do: check the arguments, train, leave the best weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from .._data import num_examples
from .._sharding import is_sharded, load_whole
from .history import History
from .identity import identity
from .loop import Engine, Loop, own_random_numbers
from .many import ManyModels
from .one import OneModel
from .options import Options
from .preparation import (
    check_training_data,
    check_validation_data,
    initial_state,
    joined,
    prepare,
    set_num_data,
)
from .processes import Processes


def run(
    models: Sequence[nn.Module],
    train: Sequence[Any],
    validation: Sequence[Any],
    options: Options,
    seeds: Sequence[int],
    *,
    together: bool = True,
    bar: Any = None,
    deadline: float = math.inf,
    traces: dict[Any, Any] | None = None,
) -> list[History]:
    """Train models, each on its own data.

    Args:
        models: all alike but for their weights.
        train: for each model.
        validation: for each model; None for none.
        options: of `fit`.
        seeds: for each model.
        together: whether as one batched model; otherwise there is one.
        bar: shows progress in the place of a bar of this training.
        deadline: when to stop, in the seconds of `time.monotonic`.
        traces: see `ManyModels`.

    Returns:
        What happened in each epoch, for each model.
    """
    validated = validation[0] is not None
    if options.retrain and not validated:
        raise ValueError("retrain chooses the number of epochs on validation data; pass some")
    if options.patience is not None and not validated:
        raise ValueError("patience is about the validation NLL; pass validation data")
    if any(repr(model) != repr(models[0]) for model in models):
        raise ValueError("the models must be alike but for their weights; train them one by one")
    for model in models:
        _check_model(model, together)
        if options.device is not None:
            model.to(options.device)
    processes = Processes(next(models[0].parameters()).device)
    for data in train:
        check_training_data(data, processes)
    for data in validation if validated else ():
        check_validation_data(data, processes, is_sharded(models[0]))
    everything: Sequence[Any] = list(map(joined, train, validation)) if options.retrain else train
    modes = [(module, module.training) for model in models for module in model.modules()]

    def make_engine(phase: int, initial: list[Any], start: bool) -> Engine:
        data = everything if phase == 1 else train
        for at, model in enumerate(models):
            growth = num_examples(data[at]) / num_examples(train[at]) if phase == 1 else 1
            set_num_data(model, initial[at], growth)
            if start:
                prepare(model, initial[at], data[at], options, seeds[at], processes)
        if not together:
            return OneModel(models[0], data[0], validation[0], options, phase, processes)
        held_out = validation if validated else None
        return ManyModels(models, data, held_out, options, seeds, phase, traces)

    initial = [initial_state(model, processes) for model in models]
    loop = Loop(make_engine, initial, options, validated, processes, bar, deadline)
    try:
        with own_random_numbers():
            saved = options.checkpoint is not None
            loop.run(identity(models, train, validation, options, seeds) if saved else {})
    except FloatingPointError:
        load_whole(models[0], loop.final_state(0))
        raise
    except BaseException:  # so that another call resumes the same run
        for at, model in enumerate(models):
            set_num_data(model, initial[at])
        raise
    finally:
        for module, training in modes:
            module.training = training
    for at, model in enumerate(models):
        load_whole(model, loop.final_state(at))
    processes.wait()
    return [trainee.history for trainee in loop.trainees]


def _check_model(model: nn.Module, together: bool) -> None:
    """Raise if a model cannot be trained as it is."""
    if isinstance(model, DistributedDataParallel):
        raise TypeError("pass the bare model: fit lets the processes train together by itself")
    if next(model.parameters(), None) is None:
        raise ValueError("the model has no parameters to train")
    lazy = [name for name, parameter in model.named_parameters() if is_lazy(parameter)]
    if lazy:
        raise ValueError(
            f"the lazy layers of the model have no shape yet ({', '.join(lazy)}); "
            "call the model on one batch of inputs first"
        )
    if together and is_sharded(model):
        raise TypeError("many models train on one process each; train a sharded one with fit")
