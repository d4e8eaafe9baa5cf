"""What every predictive is: tensors that share their leading dimensions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils import _pytree as pytree

Self = TypeVar("Self", bound="Predictive")


@dataclass(frozen=True, eq=False)
class Predictive(ABC):
    """A batch of predictive distributions."""

    def __init_subclass__(cls) -> None:
        """Register every predictive as a pytree."""
        super().__init_subclass__()
        pytree.register_pytree_node(
            cls,
            lambda self: (self._tensors(), None),
            lambda tensors, _: cls(*tensors),
            serialized_type_name=f"lastlayer.{cls.__name__}",
        )

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]

    def __getitem__(self: Self, index: Any) -> Self:
        """The predictive of some of the examples; indexes the leading dimensions."""
        index = index if isinstance(index, tuple) else (index,)
        free = len(self.batch_shape) - sum(map(_indexed_dimensions, index))
        if free < 0:
            raise IndexError(f"{len(index)} indices for a batch of shape {tuple(self.batch_shape)}")
        for position, entry in enumerate(index):
            if entry is ...:  # the rest of the batch, not of the tensors
                index = index[:position] + (slice(None),) * free + index[position + 1 :]
                break
        return type(self)(*(tensor[index] for tensor in self._tensors()))

    def __len__(self) -> int:
        """The size of the first leading dimension."""
        if not self.batch_shape:
            raise TypeError("a single prediction has no length")
        return self.batch_shape[0]

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Move or cast every tensor, as `Tensor.to`."""
        return type(self)(*(tensor.to(*args, **kwargs) for tensor in self._tensors()))

    def cpu(self: Self) -> Self:
        """Move every tensor to main memory."""
        return self.to("cpu")

    def detach(self: Self) -> Self:
        """Cut every tensor from the graph."""
        return type(self)(*(tensor.detach() for tensor in self._tensors()))

    @property
    def batch_shape(self) -> torch.Size:
        """The leading dimensions."""
        return self._tensors()[0].shape[:-1]

    @abstractmethod
    def distribution(self) -> Distribution:
        """The `torch.distributions` object."""

    @abstractmethod
    def sample(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws of the target, (*sample_shape, …)."""


def _indexed_dimensions(entry: Any) -> int:
    """How many dimensions of a tensor an entry of its index takes up."""
    if entry is None or entry is ...:
        return 0
    return entry.ndim if isinstance(entry, Tensor) and entry.dtype == torch.bool else 1


def as_shape(sample_shape: Sequence[int] | int) -> tuple[int, ...]:
    return (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
