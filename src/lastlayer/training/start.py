"""What happens once, before the first epoch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.data import ConcatDataset, Dataset

from ..data import Data, batches, has_own_batches
from ..heads import GenerativeClassification, Head, Regression
from ..network import Network
from .checkpoint import copied
from .options import Options, mixed_seed
from .processes import Processes


def the_head(model: nn.Module) -> Head | None:
    """The head of a model, if it has exactly one."""
    heads = [module for module in model.modules() if isinstance(module, Head)]
    return heads[0] if len(heads) == 1 else None


def initial_state(model: nn.Module) -> dict[str, Any]:
    """What a model is before training: its state, and whether its head is as it was made."""
    head = the_head(model)
    return {"state": copied(model.state_dict()), "fresh": head is not None and head.fresh}


@torch.no_grad()
def prepare(
    model: nn.Module, initial: dict[str, Any], train: Data, options: Options, seed: int
) -> None:
    """Go to the initial state, start a new regression head at the scale of the data, count."""
    model.load_state_dict(initial["state"])
    head = the_head(model)
    if options.initialize and initial["fresh"] and isinstance(head, Regression):
        _initialize(model, head, train, mixed_seed("start", seed))
    if isinstance(head, GenerativeClassification):
        _count(head, train)


def _initialize(model: nn.Module, head: Regression, train: Data, seed: int) -> None:
    """See `Regression.initialize`; with the features of a first batch."""
    if not isinstance(model, Network | Regression):
        return
    batch = next(batches(train, 1024, device=head.mean.device), None)
    if batch is None or batch.target is None:
        raise ValueError("training data must be (inputs, target), and not empty")
    model.eval()
    features = model.backbone(batch.inputs) if isinstance(model, Network) else batch.inputs
    target = batch.target
    if batch.weight is not None:  # what counts nothing may be NaN
        missing = [1] * (target.ndim - batch.weight.ndim)
        target = target.where(batch.weight.reshape(*batch.weight.shape, *missing) != 0, 0.0)
    torch.manual_seed(seed)
    head.initialize(features, target)


def _count(head: GenerativeClassification, train: Data) -> None:
    """Observe the labels of all the data, in one pass."""
    head.concentration.fill_(head.prior_concentration)
    device = head.concentration.device
    before = head.concentration.clone()
    for batch in batches(train, 65536):
        if batch.target is None:
            raise ValueError("training data must be (inputs, target)")
        target = batch.target if batch.weight is None else batch.target[batch.weight != 0]
        head.observe(target.to(device))
    if has_own_batches(train):  # a loader may give each process a part
        counts = Processes(device).sum(head.concentration - before)
        head.concentration.copy_(before + counts)


def joined(first: Data, second: Data) -> Data:
    """All examples of both."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return tuple(pytree.tree_map(lambda a, b: torch.cat([a, b]), first, second))
    if all(isinstance(data, Dataset) and not has_own_batches(data) for data in (first, second)):
        return ConcatDataset([first, second])  # type: ignore[list-item]
    raise TypeError(
        "retrain joins training and validation data: pass both as tensors, or both as Datasets"
    )
