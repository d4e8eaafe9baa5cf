"""A second Bayesian last layer of a head, for what it knows of its noise."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from .._checks import check_count
from ._weights import GaussianWeights


class SecondLayer(GaussianWeights):
    """Gaussian weights for the last of a head's features and a constant.

    Args:
        num_features: how many of the features; None is all.
        num_outputs: K.
        num_head_features: N, of the head.
        options: as of `GaussianWeights`.
    """

    def __init__(
        self, num_features: int | None, num_outputs: int, *, num_head_features: int, **options: Any
    ) -> None:
        if num_features is None:
            num_features = num_head_features
        check_count("num_noise_features", num_features)
        if num_features > num_head_features:
            raise ValueError(
                f"num_noise_features={num_features} must be at most num_features="
                f"{num_head_features}: they are the last of the features"
            )
        super().__init__(num_features, num_outputs, bias=True, **options)

    def reset_parameters(self) -> None:
        """Nothing: the head initialises it, after its own weights."""

    def inputs(self, features: Tensor, head: GaussianWeights) -> Tensor:
        """Its features and a constant, (*batch, M + 1), from the head's prepared features."""
        inputs = features[..., head.num_features - self.num_features :]
        return inputs if head.bias else F.pad(inputs, (0, 1), value=1.0)
