"""Scores of features with the linear layer that follows them."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from .._checks import check_count
from ..functional import at_least_float32
from .statistics import ClassStatistics


class _LayerScore(ClassStatistics):
    """A score with the weights of a linear layer as buffers.

    Attributes:
        layer_weight: (K, N), a buffer, as is the next.
        layer_bias: (K,).
    """

    layer_weight: Tensor
    layer_bias: Tensor

    def __init__(
        self, weight: Tensor, bias: Tensor | None, covariance: Literal["shared", "diagonal"]
    ) -> None:
        if weight.ndim != 2 or len(weight) < 2:
            raise ValueError(
                "weight must be that of a linear layer with at least two classes, (K, N), got "
                f"shape {tuple(weight.shape)}"
            )
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        super().__init__(weight.shape[-1], 1, covariance=covariance, device=weight.device)
        self.register_buffer("layer_weight", weight.detach().double().clone())
        self.register_buffer("layer_bias", bias.detach().double().clone())

    def update(
        self, features: Tensor, target: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        """Add a batch of examples, whose labels say nothing; see `FeatureScore.update`."""
        super().update(features, None, weight)

    def _logits(self, points: Tensor) -> Tensor:
        return points @ self.layer_weight.mT + self.layer_bias

    def options(self) -> dict[str, Any]:
        """Arguments that make a score like this one, which has seen nothing."""
        return {"weight": self.layer_weight, "bias": self.layer_bias}

    def _check_seen(self) -> None:
        if not bool(self.counts > 0):
            raise RuntimeError("this score has seen no examples; call update or from_model first")


class VirtualLogitMatching(_LayerScore):
    r"""ViM (Wang et al., 2022): a logit for what lies outside of the principal subspace.

    $$\alpha\,\lVert P^\perp(\phi - o)\rVert - \log\sum_k e^{z_k},\quad
      \alpha = \overline{\max_k z_k}\,\big/\sqrt{\overline{\lVert P^\perp(\phi-o)\rVert^2}}$$

    with o the point where all logits are zero, as nearly as can be, and P the principal directions
    of φ − o. Means are over training features; the published α has the mean of the norm where
    this has the root of the mean square, which one pass can tell.

    Args:
        weight: of the last layer, (K, N).
        bias: of the last layer, (K,).
        num_directions: of P; None is 1000 for N of 1500 or more, 512 for 768 or more, else N/2, as
            published.
    """

    max_logit: Tensor

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, *, num_directions: int | None = None
    ) -> None:
        super().__init__(weight, bias, "shared")
        size = self.num_features
        if num_directions is None:
            num_directions = 1000 if size >= 1500 else 512 if size >= 768 else max(size // 2, 1)
        check_count("num_directions", num_directions)
        self.num_directions = num_directions
        self.register_buffer("max_logit", torch.zeros_like(self.counts))  # their sum, (1,)
        self._residual: tuple[Tensor, Tensor, Tensor] | None = None

    @torch.no_grad()
    def update(
        self, features: Tensor, target: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        """Add a batch of examples; see `FeatureScore.update`."""
        super().update(features, target, weight)
        largest = self._logits(self._points(features)).amax(-1)
        self.max_logit += (largest if weight is None else largest * weight.to(largest)).sum()

    @torch.no_grad()
    def merge(self, other: VirtualLogitMatching) -> None:  # type: ignore[override]
        """Add all examples that another one has seen, in place."""
        super().merge(other)
        self.max_logit += other.max_logit.to(self.max_logit)

    @torch.no_grad()
    def all_reduce(self, group: Any = None) -> None:
        """Merge those of all processes of a `torch.distributed` group, in place."""
        super().all_reduce(group)
        torch.distributed.all_reduce(self.max_logit, group=group)

    def options(self) -> dict[str, Any]:
        """Arguments that make a score like this one, which has seen nothing."""
        return super().options() | {"num_directions": self.num_directions}

    def forward(self, features: Tensor) -> Tensor:
        """The score of features (*batch, N), (*batch,)."""
        points = self._points(features)
        origin, complement, factor = self._derived()
        residual = ((points - origin) @ complement).square().sum(-1).sqrt()
        score = factor * residual - self._logits(points).logsumexp(-1)
        return score.to(at_least_float32(features).dtype)

    @torch.no_grad()
    def _derived(self) -> tuple[Tensor, Tensor, Tensor]:
        if self._residual is None:
            self._check_seen()
            origin = -torch.linalg.pinv(self.layer_weight) @ self.layer_bias
            shift = self.mean[0] - origin
            moment = self.scatter / self.counts + shift[:, None] * shift
            eigenvalues, basis = torch.linalg.eigh(moment)  # smallest first
            outside = max(self.num_features - self.num_directions, 0)
            square = eigenvalues[:outside].clamp(min=0).sum()
            factor = self.max_logit[0] / self.counts[0] * square.where(square > 0, 1.0).rsqrt()
            self._residual = origin, basis[:, :outside], factor
        return self._residual

    def _forget(self) -> None:
        self._residual = None


class DecisionBoundaryDistance(_LayerScore):
    r"""fDBD (Liu and Qin, 2024): distance to the decision boundaries, in units of that to the mean.

    $$-\frac1{K-1}\sum_{k\neq\hat y}\frac{z_{\hat y} - z_k}{\lVert w_{\hat y}-w_k\rVert}
      \Big/\lVert\phi-\bar\phi\rVert$$

    with ŷ the class of the largest logit z and φ̄ the mean of training features.

    Args:
        weight: of the last layer, (K, N).
        bias: of the last layer, (K,).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__(weight, bias, "diagonal")

    def forward(self, features: Tensor) -> Tensor:
        """The score of features (*batch, N), (*batch,)."""
        self._check_seen()
        points = self._points(features)
        logits = self._logits(points)
        largest, chosen = logits.max(-1)
        between = torch.cdist(self.layer_weight, self.layer_weight)
        between = between + torch.eye(len(between), dtype=between.dtype, device=between.device)
        distance = (largest.unsqueeze(-1) - logits) / between[chosen]  # zero for the class itself
        mean = distance.sum(-1) / (logits.shape[-1] - 1)
        score = -mean / (points - self.mean[0]).norm(dim=-1)
        return score.to(at_least_float32(features).dtype)
