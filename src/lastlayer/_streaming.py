"""A model over a data set, batch by batch, without changing the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from ._data import Batch, Data, batches, num_examples
from .predictive import Predictive

_LOCK = threading.Lock()
_FROZEN: dict[nn.Module, tuple[bool, int]] = {}  # the mode to restore, and how many need it frozen


@contextmanager
def frozen(model: object) -> Iterator[None]:
    """Without gradients, and a module in evaluation mode: no statistics move.

    Each part of the module is put back into its own mode when the last of several threads that
    have frozen it leaves.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    with _LOCK:
        for module in modules:
            mode, count = _FROZEN.get(module, (module.training, 0))
            _FROZEN[module] = mode, count + 1
            module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        with _LOCK:
            for module in modules:
                mode, count = _FROZEN.pop(module)
                if count > 1:
                    _FROZEN[module] = mode, count - 1
                else:
                    module.training = mode


def predictions(
    model: Callable[[Any], Any],
    data: Data | Tensor,
    *,
    batch_size: int = 1024,
    progress: bool | None = None,
    what: str = "predictions",
) -> Iterator[tuple[Any, Batch]]:
    """Yield what a model returns for each batch, with the batch; nothing in the model changes.

    A module runs in evaluation mode, so that dropout is off and batch-norm statistics stay as
    they are, and is put back into the mode of each of its parts after every batch.

    Args:
        model: a network, a backbone, or any callable of the inputs.
        data: a tensor of inputs, or data in any of the forms of `lastlayer.data`.
        batch_size: of tensors and Datasets; a DataLoader has its own.
        progress: whether to show a progress bar; None for where there is a terminal.
        what: the bar is about.
    """
    data = (data,) if isinstance(data, Tensor) else data
    hidden = None if progress is None else not progress
    with tqdm(total=_size(data), desc=what, unit=" examples", leave=False, disable=hidden) as bar:
        for batch in batches(data, batch_size, device=device_of(model)):
            with frozen(model):
                output = model(batch.inputs)
            yield output, batch
            bar.update(batch.size)


def _size(data: Data) -> int | None:
    try:
        return num_examples(data)
    except TypeError:  # only reading would tell
        return None


def device_of(model: object) -> torch.device | None:
    """The device of a module's parameters or buffers, if it has some."""
    if not isinstance(model, nn.Module):
        return None
    tensor = next(chain(model.parameters(), model.buffers()), None)
    return None if tensor is None else tensor.device


def labelled(
    model: Callable[[Any], Any], data: Data, batch_size: int, progress: bool | None
) -> Iterator[tuple[Any, Tensor, Tensor | None]]:
    """Yield predictive, target and weight of every batch; an error if there is no example."""
    empty = True
    for predictive, batch in predictions(model, data, batch_size=batch_size, progress=progress):
        if batch.target is None:
            raise ValueError(
                "held-out data must come with its targets; pass (inputs, target), or a Dataset "
                "or DataLoader of such pairs"
            )
        empty = empty and batch.target.numel() == 0
        yield Predictive.check(predictive), batch.target, batch.weight
    if empty:
        raise ValueError("held-out data must hold at least one example, got none")
