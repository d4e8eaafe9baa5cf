"""Choosing what to label next."""

from __future__ import annotations

import torch
from torch import Tensor
from tqdm import tqdm

from .._checks import check_choice, check_count
from .._data import Data, num_examples
from ..heads import Head
from ..network import Network
from ._base import Candidates, Method
from .bait import BAIT
from .bald import BALD, BatchBALD
from .candidates import observe
from .epig import EPIG
from .lcmd import LCMD
from .simple import Entropy, Margin, MaxVariance, Random

METHODS: dict[str, Method] = {
    "lcmd": LCMD(),
    "bait": BAIT(),
    "batchbald": BatchBALD(),
    "bald": BALD(),
    "epig": EPIG(),
    "max_variance": MaxVariance(),
    "entropy": Entropy(),
    "margin": Margin(),
    "random": Random(),
}


@torch.no_grad()
def select(
    model: Network | Head,
    labelled: Data | Tensor | None,
    pool: Data | Tensor,
    batch_size: int,
    method: str | Method | None = None,
    *,
    seed: int = 0,
    inference_batch_size: int = 1024,
    max_memory_bytes: int = 2**31,
    progress: bool | None = None,
) -> Tensor:
    """Choose the points of a pool whose labels would help most, as one batch.

    The model is to have been fitted to what is labelled: its posterior says what is known. Nothing
    about it changes. The backbone runs once over the pool, in evaluation mode; what is computed
    then stays in main memory, or in a temporary file where it does not fit.

    Args:
        model: a network with a regression or discriminative head; or such a head, if the data are
            features already.
        labelled: what the model was fitted to, in any form of data, with targets or without; None
            if nothing is labelled yet.
        pool: inputs to choose from, as a tensor, a tuple, a Dataset or a DataLoader that does not
            shuffle; targets in it are not looked at.
        batch_size: how many to choose.
        method: None for "lcmd" of regression and "margin" of classification; or "lcmd", "bait",
            "batchbald", "bald", "epig", "max_variance", "entropy", "margin" (classification alone)
            or "random"; or one with its options, as `EPIG(num_targets=256)`, or of your own.
        seed: of what is random.
        inference_batch_size: of the backbone, for tensors and Datasets.
        max_memory_bytes: of what is computed of the pool, in main memory.
        progress: whether to show progress bars; None for where there is a terminal.

    Returns:
        Indices into the pool, (batch_size,), all different, in the order of choice.
    """
    if isinstance(method, str):
        check_choice("method", method, METHODS)
        method = METHODS[method]
    check_count("batch_size", batch_size)
    size = _count("pool", pool)
    if size is not None:
        _check_size(size, batch_size)
    if labelled is not None and _count("labelled", labelled) == 0:
        raise ValueError("labelled holds no examples; pass None if nothing is labelled yet")
    if method is None or method.needs_posterior:
        rest = (inference_batch_size, max_memory_bytes, progress)
        candidates = observe(model, labelled, pool, *rest)
        _check_size(len(candidates), batch_size)
    elif size is None:
        raise TypeError(
            "the size of the pool is not known without reading it; pass tensors, a Dataset with a "
            "length, or a DataLoader over one"
        )
    else:
        nothing = torch.zeros(size)
        candidates = Candidates((), (), nothing, nothing, nothing[:, None])
    if method is None:
        method = METHODS["margin" if candidates.probs.shape[-1] else "lcmd"]
    generator = torch.Generator().manual_seed(seed)
    hidden = None if progress is None else not progress
    with tqdm(total=batch_size, desc="choosing", leave=False, disable=hidden) as bar:
        return method.choose(candidates, batch_size, generator, bar.update)


def _count(name: str, data: Data | Tensor) -> int | None:
    """How many examples there are, if that can be told without reading them."""
    try:
        return num_examples((data,) if isinstance(data, Tensor) else data)
    except TypeError:
        return None


def _check_size(size: int, batch_size: int) -> None:
    if size == 0:
        raise ValueError("the pool is empty: there is nothing left to label")
    if batch_size > size:
        raise ValueError(
            f"batch_size is {batch_size}, but the pool holds {size} examples; choose at most as "
            "many"
        )
