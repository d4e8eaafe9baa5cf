"""Counts, means and scatters of the features of each class, in one pass."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from .._checks import check_choice, check_finite, check_weight, check_weights
from ._base import FeatureScore
from .gaussians import outer

COVARIANCES = ("shared", "diagonal", "dense")


class ClassStatistics(FeatureScore):
    """What Gaussian densities of the features of each class need to know of them.

    Never raw second moments: features with a large offset keep their digits.

    Args:
        num_features: N.
        num_classes: K; one class needs no labels.
        covariance: "shared", the scatter about their means of all classes together; "diagonal"; or
            "dense", with K·N² numbers.
        unit_length: see `FeatureScore`.
        power: see `FeatureScore`.
        device: of the statistics.

    Attributes:
        counts: T_y, (K,), a buffer, as are the next two.
        mean: mean of the features of each class, (K, N).
        scatter: Σ_t(φ_t − φ̄_y)(φ_t − φ̄_y)ᵀ, (N, N) if shared and (K, N, N) if dense, or its
            diagonals, (K, N).
    """

    counts: Tensor
    mean: Tensor
    scatter: Tensor

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        covariance: Literal["shared", "diagonal", "dense"],
        unit_length: bool = False,
        power: float = 1.0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(num_features, num_classes, unit_length=unit_length, power=power)
        check_choice("covariance", covariance, COVARIANCES)
        self.covariance = covariance
        shape = (num_classes, num_features)
        scatters = {"shared": 2 * shape[1:], "diagonal": shape, "dense": shape + shape[1:]}
        shapes = {"counts": shape[:1], "mean": shape, "scatter": scatters[covariance]}
        for name, size in shapes.items():
            self.register_buffer(name, torch.zeros(size, dtype=torch.float64, device=device))

    @property
    def dense(self) -> bool:
        """Whether the scatter of each class is a matrix."""
        return self.covariance == "dense"

    @torch.no_grad()
    def update(
        self, features: Tensor, target: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        """Add a batch of examples; see `FeatureScore.update`."""
        flat = self._points(features).reshape(-1, self.num_features)
        check_finite("features", flat)
        labels = self._labels(features, target, weight)
        weights = flat.new_ones(len(flat))
        if weight is not None:
            weights = check_weight(weight, features.shape[:-1], None).to(flat).flatten()
            check_weights(weights)
        counts = torch.zeros_like(self.counts).index_add(0, labels, weights)
        total = torch.zeros_like(self.mean).index_add(0, labels, weights[:, None] * flat)
        mean = total / counts.where(counts > 0, 1)[:, None]
        error = flat - mean[labels]
        if self.covariance == "shared":
            self.scatter.addmm_(error.mT, weights[:, None] * error)
        elif self.dense:
            for label in labels.unique().tolist():
                chosen = labels == label
                self.scatter[label].addmm_(error[chosen].mT, weights[chosen, None] * error[chosen])
        else:
            self.scatter.index_add_(0, labels, weights[:, None] * error.square())
        self._absorb(counts, mean)

    @torch.no_grad()
    def merge(self, other: ClassStatistics) -> None:
        """Add all examples that another one has seen, in place."""
        self._check_alike(other)
        if self.mean.shape != other.mean.shape or self.covariance != other.covariance:
            raise ValueError(
                "only scores of the same features, classes and kind of covariance can be merged, "
                f"got {self} and {other}"
            )
        self.scatter += other.scatter.to(self.scatter)
        self._absorb(other.counts.to(self.counts), other.mean.to(self.mean))

    def _absorb(self, counts: Tensor, mean: Tensor) -> None:
        """Add examples whose scatter about their own mean is in (Chan et al., 1979)."""
        total = self.counts + counts
        share = (counts / total.where(total > 0, 1))[:, None]
        shift = mean - self.mean
        weighted = share * self.counts[:, None] * shift
        if self.covariance == "shared":
            self.scatter.addmm_(weighted.mT, shift)
        elif self.dense:  # class by class: a batch has few, and the scatters may be large
            for label in counts.nonzero().flatten().tolist():
                self.scatter[label].addr_(weighted[label], shift[label])
        else:
            self.scatter += weighted * shift
        self.mean += share * shift
        self.counts.copy_(total)
        self._forget()

    @torch.no_grad()
    def all_reduce(self, group: Any = None) -> None:
        """Merge the statistics of all processes of a `torch.distributed` group, in place."""
        total, mean = self.counts.clone(), self.counts[:, None] * self.mean
        torch.distributed.all_reduce(total, group=group)
        torch.distributed.all_reduce(mean, group=group)
        mean = mean / total.where(total > 0, 1)[:, None]
        shift = self.mean - mean
        if self.covariance == "shared":
            self.scatter.addmm_((self.counts[:, None] * shift).mT, shift)
        else:
            self.scatter += outer(shift, self.counts, self.dense)
        torch.distributed.all_reduce(self.scatter, group=group)
        self.counts.copy_(total)
        self.mean.copy_(mean)
        self._forget()

    def options(self) -> dict[str, Any]:
        """Arguments that make a score like this one, which has seen nothing."""
        return {
            "num_features": self.num_features,
            "num_classes": self.num_classes,
            "unit_length": self.unit_length,
            "power": self.power,
        }

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        return f"{super().extra_repr()}, covariance={self.covariance!r}"
