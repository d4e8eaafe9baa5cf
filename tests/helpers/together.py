"""What two processes, started by `torchrun`, train together: python -m tests.helpers.together FILE.

With `fail` instead of a file, one of them fails.
"""

import atexit
import contextlib
import itertools
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import lastlayer as ll
from tests.helpers.networks import classes, classification, curve, regression

OPTIONS: dict[str, Any] = {"epochs": 4, "learning_rate": 0.01, "progress": False}


def tensors(_: int) -> tuple[ll.Network, ll.History]:
    """The batches of 7 and the last of 2 examples cannot be halved, or leave one with one."""
    model = regression()
    return model, ll.fit(model, curve(), curve(1), batch_size=7, **OPTIONS)


def weights(_: int) -> tuple[ll.Network, ll.History]:
    model = regression()
    inputs, target = curve()
    data = (inputs, target, torch.linspace(0, 2, len(inputs)))
    return model, ll.fit(model, data, data, batch_size=9, **OPTIONS)


def whole_weights(_: int) -> tuple[ll.Network, ll.History]:
    """Integers cannot hold the factors of halves that are not equal."""
    model = regression()
    inputs, target = curve()
    data = (inputs, target, torch.arange(len(inputs)) % 3)
    return model, ll.fit(model, data, batch_size=7, **OPTIONS)


def labels(_: int) -> tuple[ll.Network, ll.History]:
    model = classification(generative=True)
    return model, ll.fit(model, TensorDataset(*classes()), batch_size=8, **OPTIONS)


def loader(processes: int) -> tuple[ll.Network, ll.History]:
    return _loader(processes, classification(generative=True), TensorDataset(*classes(count=32)))


def regression_loader(processes: int) -> tuple[ll.Network, ll.History]:
    return _loader(processes, regression(), TensorDataset(*curve(count=32)))


def _loader(
    processes: int, model: ll.Network, dataset: TensorDataset
) -> tuple[ll.Network, ll.History]:
    """Each process has a loader of its own part."""
    sampler: Any = None
    if processes > 1:
        sampler = DistributedSampler(dataset, shuffle=False)
    data = DataLoader(dataset, batch_size=32 // processes, sampler=sampler)
    return model, ll.fit(model, data, data, **OPTIONS)


def fail() -> None:
    """One of the processes fails after some steps."""
    model, steps = regression(), itertools.count()

    def hook(*_: Any) -> None:
        if torch.distributed.get_rank() == 1 and next(steps) == 3:
            raise RuntimeError("boom")

    model.backbone.register_forward_hook(hook)
    ll.fit(model, curve(), batch_size=7, **OPTIONS)


CASES = {
    case.__name__: case
    for case in (tensors, weights, whole_weights, labels, loader, regression_loader)
}


def check_threads() -> None:
    """Fail if a thread of the group of processes is left, which may abort a process that ends."""
    names = []
    for thread in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            names.append(thread.read_text().strip())
    if any("gloo" in name for name in names):
        print(f"threads are left: {names}", file=sys.stderr, flush=True)
        os._exit(3)


if __name__ == "__main__":
    atexit.register(check_threads)  # runs last, for it is registered first
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    if sys.argv[1] == "fail":
        fail()
    trained = {}
    for name in CASES:  # the first one joins the processes
        model, history = CASES[name](2)
        trained[name] = (model.state_dict(), list(history))
    if torch.distributed.get_rank() == 0:
        torch.save(trained, sys.argv[1])
