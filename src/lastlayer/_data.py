"""Data in any of its usual forms, as batches."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, Subset

# Tensors with examples along their first dimension, (inputs, target) or (inputs, target, weight);
# a map-style dataset of such examples; or an iterable of batches of them, as a DataLoader is.
Data = tuple[Any, ...] | list[Any] | Dataset[Any] | Iterable[Any]


DIGESTED = 16  # examples


class Batch(NamedTuple):
    """A batch of examples: inputs for the backbone, targets and weights."""

    inputs: Any  # a tensor, or any nest of tensors that the backbone takes
    target: Tensor | None = None
    weight: Tensor | None = None

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(pytree.tree_leaves(self.inputs)[0])

    def to(self, device: torch.device | str | None) -> Batch:
        """Move every tensor."""
        return Batch(*pytree.tree_map_only(Tensor, lambda t: t.to(device), tuple(self)))


def check_data(data: Data) -> None:
    """Raise unless data has one of the forms that `batches` reads."""
    if isinstance(data, Tensor | dict | str) or not isinstance(data, tuple | Dataset | Iterable):
        raise TypeError(
            "data must be a tuple of tensors, (inputs, target), a Dataset, or an iterable of "
            f"batches, as a DataLoader is; got a {type(data).__name__}"
        )


def has_own_batches(data: Data) -> bool:
    """Whether data comes in an order of its own, as from a DataLoader."""
    map_style = isinstance(data, Dataset) and not isinstance(data, IterableDataset)
    return not isinstance(data, tuple) and not map_style


def digest(data: Sequence[Data]) -> str:
    """A short text that changes with the numbers in tensors, and with examples of other data.

    Of a Dataset, a DataLoader over one, or a list of batches some examples are read, twice: what
    differs between the readings, as random augmentation does, is left out. Of an iterable that
    can only be read from its beginning nothing is read.
    """
    found = hashlib.blake2b(digest_size=8)
    tensors = [pytree.tree_leaves(one) for one in data if isinstance(one, tuple)]
    for tensor in dict.fromkeys(itertools.chain.from_iterable(tensors)):  # a shared one once
        found.update(_bytes(tensor))
    for one in data:
        source: Any = getattr(one, "dataset", one)
        if not isinstance(one, tuple) and hasattr(source, "__getitem__") and _length(source):
            for part in _constant_parts(source):
                found.update(part)
    return found.hexdigest()


def _constant_parts(source: Any) -> list[bytes]:
    """The parts of some examples, as far as they are the same each time they are read."""
    count = _length(source) or 0
    places = sorted({at * (count - 1) // (DIGESTED - 1) for at in range(DIGESTED)})
    first, second = (
        [[_bytes(leaf) for leaf in pytree.tree_leaves(source[at])] for at in places]
        for _ in range(2)
    )
    pairs = [list(zip(one, two, strict=False)) for one, two in zip(first, second, strict=True)]
    width = max(map(len, pairs))
    random = [any(a != b for pair in pairs for a, b in pair[at : at + 1]) for at in range(width)]
    return [a for pair in pairs for at, (a, _) in enumerate(pair) if not random[at]]


def _bytes(value: Any) -> bytes:
    """The bits of a tensor or an array, the text of a number or a string; nothing of others."""
    if not isinstance(value, Tensor) and hasattr(value, "__array__"):
        value = torch.as_tensor(value.__array__())
    if isinstance(value, Tensor):
        values = value.detach().cpu().contiguous().reshape(-1)
        return values.view(torch.uint8).numpy().tobytes()
    return repr(value).encode() if isinstance(value, bool | int | float | str) else b""


def _length(source: Any) -> int | None:
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        return None


def part_of(data: Data, rank: int, size: int) -> Data:
    """Every size-th example of tensors or a Dataset, from the rank-th on; others as they are.

    What has batches of its own, as a DataLoader has, is taken for a part already.
    """
    check_data(data)
    if size == 1 or has_own_batches(data):
        return data
    count = num_examples(data)
    if count < size:
        raise ValueError(f"{size} processes cannot share {count} examples; start fewer")
    if isinstance(data, tuple):
        return pytree.tree_map_only(Tensor, lambda tensor: tensor[rank::size], data)
    whole: Any = data
    return Subset(whole, range(rank, count, size))


def num_batches(data: Data) -> int | None:
    """How many batches data comes in, if it has batches of its own and knows it."""
    return _length(data) if has_own_batches(data) else None


def num_examples(data: Data) -> int:
    """How many examples there are, without reading them; an error if only reading would tell."""
    check_data(data)
    if isinstance(data, tuple):
        return as_batch(data).size
    source: Any = data.sampler if isinstance(data, DataLoader) else data
    if isinstance(source, Dataset | Sampler) and isinstance(source, Sized):
        return len(source)
    raise TypeError(
        f"the number of examples of a {type(data).__name__} is not known without reading it all; "
        "pass tensors, a Dataset with a length, or a DataLoader over one"
    )


def as_batch(values: Any) -> Batch:
    """Read (inputs, target) or (inputs, target, weight), a tuple or list, or inputs alone."""
    if isinstance(values, Tensor | dict):
        return Batch(values)
    if not isinstance(values, tuple | list) or not 1 <= len(values) <= 3:
        raise TypeError(
            "a batch must be inputs, (inputs, target) or (inputs, target, weight), got "
            + (f"{len(values)} values" if isinstance(values, tuple | list) else repr(type(values)))
        )
    batch = Batch(*values)
    foreign = [leaf for leaf in pytree.tree_leaves(tuple(batch)) if hasattr(leaf, "__array__")]
    if not all(isinstance(leaf, Tensor) for leaf in foreign):
        raise TypeError("data must be tensors, got NumPy arrays; convert them by torch.as_tensor")
    sizes = {len(leaf) for leaf in pytree.tree_leaves(tuple(batch)) if isinstance(leaf, Tensor)}
    if len(sizes) > 1:
        raise ValueError(
            f"inputs, target and weight must have as many examples each, got {sorted(sizes)}; "
            "examples run along the first dimension"
        )
    return batch


def batches(
    data: Data,
    batch_size: int = 1024,
    *,
    order: Tensor | None = None,
    device: torch.device | str | None = None,
) -> Iterator[Batch]:
    """Yield data in batches.

    Args:
        data: a tuple of tensors, a Dataset, or an iterable of batches, as a DataLoader is.
        batch_size: of tensors and Datasets; an iterable has its own.
        order: which examples and in which order, (count,), of tensors and Datasets.
        device: to move the batches to.
    """
    check_data(data)
    if isinstance(data, tuple):
        whole = as_batch(data)
        indices = torch.arange(whole.size) if order is None else order
        for chosen in indices.split(batch_size) if len(indices) else ():
            yield Batch(*_take(tuple(whole), chosen, order is None)).to(device)
        return
    if has_own_batches(data):
        if order is not None:
            raise TypeError(f"a {type(data).__name__} comes in its own order")
        source: Any = data
        if isinstance(data, IterableDataset):  # of examples
            source = DataLoader(data, batch_size=batch_size)
    else:
        sampler = None if order is None else order.tolist()
        source = DataLoader(data, batch_size=batch_size, sampler=sampler)  # type: ignore[arg-type]
    for values in source:
        yield as_batch(values).to(device)


def _take(values: Any, chosen: Tensor, contiguous: bool) -> Any:
    """Rows of every tensor; a view where they are contiguous."""
    first, last = int(chosen[0]), int(chosen[-1]) + 1
    if contiguous:
        return pytree.tree_map_only(Tensor, lambda t: t[first:last], values)
    return pytree.tree_map_only(Tensor, lambda t: t[chosen.to(t.device)], values)
