"""The base class of predictives: tensors that share their leading dimensions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils import _pytree as pytree

Self = TypeVar("Self", bound="Predictive")


@dataclass(frozen=True, eq=False, repr=False)
class Predictive(ABC):
    """A batch of predictive distributions, and what can be done to them.

    Derive a predictive of your own from `RegressionPredictive` or `ClassificationPredictive`, as
    a frozen dataclass of tensors with the same leading dimensions, the first of them
    (*batch, K). Calibration, conformal prediction, metrics, OOD scores and tables then take it.

    Attributes:
        task: "regression" or "classification", of the two families.
        scalings: names of the classes of `lastlayer.calibration` that apply, the default first.
        plain: what to do with outputs that are no predictive.
    """

    task: ClassVar[str] = "any task"
    scalings: ClassVar[tuple[str, ...]] = ()
    plain: ClassVar[str] = "wrap a model of plain outputs by lastlayer.Plain(model, task)"

    def __init_subclass__(cls) -> None:
        """Register every predictive as a pytree."""
        super().__init_subclass__()
        package = cls.__module__.partition(".")[0]
        name = cls.__name__ if package == "lastlayer" else f"{cls.__module__}.{cls.__qualname__}"
        pytree.register_pytree_node(
            cls,
            lambda self: (self._tensors(), None),
            lambda tensors, _: cls(*tensors),
            serialized_type_name=f"lastlayer.{name}",
        )

    @classmethod
    def check(cls: type[Self], value: object, otherwise: str = "") -> Self:
        """Return the value if it is a predictive of this family, or raise with what to do.

        Args:
            value: what a model returned.
            otherwise: what to do with a predictive of another family.
        """
        if isinstance(value, cls):
            return value
        hint = otherwise or f"this is for {cls.task} only"
        raise TypeError(
            f"the model must return a predictive of {cls.task}, as lastlayer's heads do, got "
            f"{type(value).__name__}; {hint if isinstance(value, Predictive) else cls.plain}"
        )

    def __repr__(self) -> str:
        """The shapes of the tensors."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        shown = (f"{name}: {tuple(getattr(v, 'shape', ()))}" for name, v in values.items())
        return f"{type(self).__name__}({', '.join(shown)})"

    # -------------------------------------------------------------------------------- tensors

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]

    def map(self: Self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to every tensor; it must keep the last dimensions as they are."""
        mapped: Self = pytree.tree_map(function, self)
        return mapped

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
        return self.map(lambda tensor: tensor[index])

    def __len__(self) -> int:
        """The size of the first leading dimension."""
        if not self.batch_shape:
            raise TypeError("a single prediction has no length")
        return self.batch_shape[0]

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Move or cast every tensor, as `Tensor.to`."""
        return self.map(lambda tensor: tensor.to(*args, **kwargs))

    def cpu(self: Self) -> Self:
        """Move every tensor to main memory."""
        return self.to("cpu")

    def detach(self: Self) -> Self:
        """Cut every tensor from the graph."""
        return self.map(Tensor.detach)

    def expand(self: Self, *sizes: int) -> Self:
        """Repeat the batch along new leading dimensions; a view."""
        return self.map(lambda tensor: tensor.expand(*sizes, *tensor.shape))

    @property
    def batch_shape(self) -> torch.Size:
        """The leading dimensions."""
        return self._tensors()[0].shape[:-1]

    # -------------------------------------------------------------------------- distributions

    @abstractmethod
    def distribution(self) -> Distribution:
        """The `torch.distributions` object."""

    @abstractmethod
    def sample(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws of the target, (*sample_shape, …)."""

    @abstractmethod
    def log_prob(self, target: Tensor) -> Tensor:
        """Log-density or log-probability of the target of each example, (*batch,)."""

    def affine(self, location: Tensor, scale: Tensor) -> Predictive:
        """The predictive of location + scale · y; of labels, which have no units, itself.

        Args:
            location: (K,), or (*batch, K).
            scale: above zero, as shaped.
        """
        raise self._lacks("units to change", "predictives of one example at a time have")

    def mixture(self) -> Predictive:
        """The equal mixture over the last dimension of the batch shape (*batch, S)."""
        if not self.batch_shape or self.batch_shape[-1] == 0:
            raise ValueError(
                "components must have batch shape (*batch, S) with at least one component, got "
                f"{tuple(self.batch_shape)}"
            )
        return self._mixed()

    def _mixed(self) -> Predictive:
        """`mixture`, of a checked batch shape."""
        raise self._lacks("a mixture", "predictives of one example at a time have")

    # --------------------------------------------------------------------------------- scores

    def entropy(self) -> Tensor:
        """Entropy of the target in nats, weights and noise together, (*batch,)."""
        raise self._lacks("an entropy", "that of lastlayer's heads has")

    def mutual_information(self) -> Tensor:
        """Mutual information of the target and the weights in nats, (*batch,)."""
        raise self._lacks("a mutual information", "that of lastlayer's heads has")

    def total_epistemic_variance(self) -> Tensor:
        """Variance due to the weights, of targets or logits, summed over outputs, (*batch,)."""
        raise self._lacks(
            "an epistemic variance", "those of Regression and DiscriminativeClassification have"
        )

    def has_certain_weights(self) -> bool:
        """Whether nothing is uncertain but the noise, as of a network without a posterior."""
        return False

    def log_density(self) -> Tensor:
        """Log-density of the features, log p(φ); low means unlike the training data, (*batch,)."""
        raise self._lacks("a density of the features", "that of GenerativeClassification has")

    def _lacks(self, what: str, others: str) -> TypeError:
        return TypeError(f"{type(self).__name__} does not have {what}, as {others}")


def _indexed_dimensions(entry: Any) -> int:
    """How many dimensions of a tensor an entry of its index takes up."""
    if entry is None or entry is ...:
        return 0
    return entry.ndim if isinstance(entry, Tensor) and entry.dtype == torch.bool else 1


def as_shape(sample_shape: Sequence[int] | int) -> tuple[int, ...]:
    return (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)


def log_mean_exp(tensor: Tensor, dim: int = -1) -> Tensor:
    return tensor.logsumexp(dim) - math.log(tensor.shape[dim])
