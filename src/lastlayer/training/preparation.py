"""Preparation before the first epoch: initialisation, checks of data, joined data."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset

from .._data import Data, as_batch, batches, check_data, has_own_batches, num_batches, num_examples
from .._sharding import load_whole
from ..heads import Head
from .checkpoint import copied
from .options import Options, mixed_seed
from .processes import Processes

NO_TARGET = (
    "training data must be (inputs, target), and not empty; a list is read as a list of batches, "
    "a tuple as the data"
)


def the_head(model: nn.Module) -> Head | None:
    """The head of a model, if it has exactly one."""
    heads = [module for module in model.modules() if isinstance(module, Head)]
    return heads[0] if len(heads) == 1 else None


def counting(model: nn.Module) -> list[Any]:
    """Modules that weigh something by the number of training examples, as heads do."""
    return [module for module in model.modules() if hasattr(module, "num_data")]


def warn_of_weight_decay(model: nn.Module, groups: Iterable[dict[str, Any]]) -> None:
    """Warn if parameter groups of an optimiser decay the weights of a head, which has a prior."""
    decayed = {id(one) for group in groups if group.get("weight_decay") for one in group["params"]}
    parts = [part for part in model.modules() if isinstance(part, Head) and part.has_prior]
    if any(id(parameter) in decayed for part in parts for parameter in part.parameters()):
        warnings.warn(
            "weight decay reaches the head, which has a prior instead: give the optimiser a group "
            "of the head's parameters with weight_decay=0, or use none",
            stacklevel=2,
        )


def initial_state(model: nn.Module, processes: Processes) -> dict[str, Any]:
    """The state of a model before training."""
    head = the_head(model)
    return {
        "state": copied(model.state_dict()),
        "fresh": all(processes.each(head is not None and head.fresh)),
        "num_data": [module.num_data for module in counting(model)],
    }


def set_num_data(model: nn.Module, initial: dict[str, Any], growth: float = 1) -> None:
    """Set the number of training examples to a multiple of what it was before training."""
    for module, size in zip(counting(model), initial["num_data"], strict=True):
        module.num_data = growth * size


@torch.no_grad()
def prepare(
    model: nn.Module,
    initial: dict[str, Any],
    train: Data,
    options: Options,
    seed: int,
    processes: Processes,
) -> None:
    """Return to the initial state, and let the head prepare itself for the data."""
    load_whole(model, initial["state"])
    seed = mixed_seed("start", seed)
    torch.manual_seed(seed)
    reseed(train, seed, 0)
    head = the_head(model)
    if head is not None:
        new = options.initialize and initial["fresh"]
        total = processes.sum if has_own_batches(train) else _itself  # else all see all the data
        head.prepare(_targets(train, seed), new=new, total=total)


def _targets(train: Data, seed: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Targets and weights: all that are in memory, or batch by batch."""
    empty = True
    for _, target, weight in [as_batch(train)] if isinstance(train, tuple) else batches(train, 256):
        if target is None or not target.numel():
            raise ValueError(NO_TARGET)
        empty = False
        torch.manual_seed(seed)  # what a loader draws does not change what the head draws
        yield target, weight
    if empty:
        raise ValueError(NO_TARGET)


def _itself(tensor: Tensor) -> Tensor:
    return tensor


def reseed(loader: Any, seed: int, epoch: int) -> None:
    """Let a loader's order depend on the epoch alone, so that a run can be taken up there."""
    if not isinstance(loader, DataLoader):
        return
    inner = getattr(loader.batch_sampler, "sampler", None)
    owners: list[Any] = [loader, loader.sampler, loader.batch_sampler, inner]
    for owner in owners:
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)
        if hasattr(owner, "set_epoch"):
            owner.set_epoch(epoch)


def check_training_data(train: Any, processes: Processes) -> None:
    """Raise if data cannot be read once an epoch, or not by several processes."""
    check_data(train)
    if isinstance(train, Iterator):
        raise TypeError(
            f"a {type(train).__name__} can be read only once, and every epoch reads the data; pass "
            "a list of batches, or a DataLoader"
        )
    sampled = isinstance(train, DataLoader) and not isinstance(train.dataset, IterableDataset)
    if processes.size > 1 and sampled and not hasattr(train.sampler, "num_replicas"):
        raise TypeError(
            "with several processes a DataLoader must give each its own part: use a "
            "DistributedSampler, or pass tensors or a Dataset, which fit divides by itself"
        )
    _check_lengths(train, "training", processes)


def check_validation_data(validation: Any, processes: Processes, sharded: bool) -> None:
    """Raise if several processes cannot read validation data; sharded models do so in step."""
    if sharded or not has_own_batches(validation):
        _check_lengths(validation, "validation", processes)


def _check_lengths(data: Any, which: str, processes: Processes) -> None:
    """Raise on all processes if their data are not of one length, so far as that is known."""
    if processes.size > 1:
        count = num_batches(data) if has_own_batches(data) else num_examples(data)
        what = "batches" if has_own_batches(data) else "examples"
        processes.check_equal(f"{which} {what}", -1 if count is None else count)


def joined(first: Data, second: Data) -> Data:
    """All examples of both."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        if len(first) != len(second):
            raise ValueError("retrain joins the data: training and validation both need weights")
        return tuple(pytree.tree_map(lambda a, b: torch.cat([a, b]), first, second))
    if all(isinstance(data, Dataset) and not has_own_batches(data) for data in (first, second)):
        return ConcatDataset([first, second])  # type: ignore[list-item]
    raise TypeError(
        "retrain joins training and validation data: pass both as tensors, or both as Datasets"
    )
