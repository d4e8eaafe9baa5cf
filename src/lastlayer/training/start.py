"""What happens once, before the first epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset

from .._data import Batch, Data, as_batch, batches, check_data, has_own_batches
from ..heads import GenerativeClassification, Head, Regression
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


def initial_state(model: nn.Module) -> dict[str, Any]:
    """What a model is before training."""
    head = the_head(model)
    return {
        "state": copied(model.state_dict()),
        "fresh": head is not None and head.fresh,
        "num_data": [module.num_data for module in counting(model)],
    }


@torch.no_grad()
def prepare(
    model: nn.Module,
    initial: dict[str, Any],
    train: Data,
    options: Options,
    seed: int,
    processes: Processes,
) -> None:
    """Go to the initial state, start a new regression head at the scale of the data, count."""
    model.load_state_dict(initial["state"])
    head = the_head(model)
    number = mixed_seed("start", seed)
    torch.manual_seed(number)
    reseed(train, number, 0)
    if options.initialize and initial["fresh"] and isinstance(head, Regression):
        scale = _mean_square(head, train, processes)
        torch.manual_seed(number)
        head.initialize_scale(scale)
    if isinstance(head, GenerativeClassification):
        _count(head, train, processes)


def _mean_square(head: Regression, train: Data, processes: Processes) -> Tensor:
    """Of the targets of each output: of all that are in memory, or of a first batch, (K,)."""
    batch = as_batch(train) if isinstance(train, tuple) else next(batches(train, 256), Batch(()))
    if batch.target is None or not batch.target.numel():
        raise ValueError(NO_TARGET)
    target = batch.target.double().reshape(-1, head.num_outputs)
    weight = torch.ones_like(target)
    if batch.weight is not None:  # what counts nothing may be NaN
        weight = (batch.weight != 0).double().reshape(len(target), -1).expand_as(target)
    sums = torch.stack([target.square().where(weight != 0, 0.0).sum(0), weight.sum(0)])
    sums = processes.sum(sums.to(head.mean.device))
    return sums[0] / sums[1].clamp(min=1)


def _count(head: GenerativeClassification, train: Data, processes: Processes) -> None:
    """Observe the labels of all the data, in one pass."""
    head.concentration.fill_(head.prior_concentration)
    device = head.concentration.device
    before = head.concentration.clone()
    for _, target, weight in batches(train, 65536 if isinstance(train, tuple) else 256):
        if target is None:
            raise ValueError(NO_TARGET)
        head.observe(target.to(device), None if weight is None else weight.to(device))
    if has_own_batches(train):  # each process has its part
        counts = processes.sum(head.concentration - before)
        head.concentration.copy_(before + counts)


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
