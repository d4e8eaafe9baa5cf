"""Relative Mahalanobis distance (Ren et al., 2021)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..functional import at_least_float32
from .statistics import ClassStatistics

RELATIVE_RANK = 1e-10  # eigenvalues below this share of the largest are directions without data


class _Whitened(NamedTuple):
    center: Tensor  # (N,)
    total: Tensor  # whitening of all features, (N, R)
    within: Tensor  # whitening within classes, (N, R')
    classes: Tensor  # means of classes with examples, whitened within, (K, R')


class RelativeMahalanobis(ClassStatistics):
    r"""Squared distance to the nearest class, less that to all features together.

    $$\min_y\,(\phi-\bar\phi_y)^\top\Sigma^{-1}(\phi-\bar\phi_y)
      - (\phi-\bar\phi)^\top\Sigma_0^{-1}(\phi-\bar\phi)$$

    with the empirical covariance Σ within classes and Σ₀ of all features, as published: features
    as they are, nothing shrunk; directions without data are left out. `FeatureDensity` is this with
    priors, and better with few examples.

    Args:
        num_features: N.
        num_classes: K.
        unit_length: see `FeatureScore`.
        power: see `FeatureScore`.
        device: of the statistics.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        unit_length: bool = False,
        power: float = 1.0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(
            num_features,
            num_classes,
            covariance="shared",
            unit_length=unit_length,
            power=power,
            device=device,
        )
        self._whitened: _Whitened | None = None

    def forward(self, features: Tensor) -> Tensor:
        """The score of features (*batch, N), (*batch,)."""
        points, derived = self._points(features), self._derived()
        shifted = points - derived.center
        all_together = (shifted @ derived.total).square().sum(-1)
        whitened = torch.atleast_2d(shifted @ derived.within)  # `cdist` takes no single vector
        nearest = torch.cdist(whitened, derived.classes).square().amin(-1)
        nearest = nearest.reshape(all_together.shape)
        return (nearest - all_together).to(at_least_float32(features).dtype)

    @torch.no_grad()
    def _derived(self) -> _Whitened:
        if self._whitened is None:
            total = self.counts.sum()
            if not bool(total > 0):
                raise RuntimeError(
                    "this score has seen no examples; call update or from_model first"
                )
            center = self.counts @ self.mean / total
            shift = self.mean - center
            within = self.scatter / total
            between = shift.mT @ ((self.counts / total)[:, None] * shift)
            inner = _whitening(within)
            self._whitened = _Whitened(
                center, _whitening(within + between), inner, shift[self.counts > 0] @ inner
            )
        return self._whitened

    def _forget(self) -> None:
        self._whitened = None


def _whitening(covariance: Tensor) -> Tensor:
    """A with AAᵀ the pseudo-inverse, (N, R)."""
    eigenvalues, basis = torch.linalg.eigh(covariance)
    kept = eigenvalues > RELATIVE_RANK * eigenvalues[-1]
    return basis[:, kept] * eigenvalues[kept].rsqrt()
