"""The log-variance of noise as a Gaussian last layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..priors import Prior
from ._second_layer import SecondLayer


class LogNoise(SecondLayer):
    """The posterior q(v_k) = N(v̄_k, S'_k) of the weights of log-variances, with a constant feature.

    Attributes:
        num_data: T, of which the initial S' depends.
    """

    def __init__(
        self,
        num_features: int | None,
        num_outputs: int,
        *,
        num_data: float,
        **options: Any,
    ) -> None:
        super().__init__(num_features, num_outputs, **options)
        self.num_data = num_data

    @classmethod
    def default_prior(cls, num_features: int) -> Prior:
        """Log-variances of unit variance for features of unit mean square, about any level."""
        return Prior(variance=1 / num_features, bias_variance=100.0)

    @torch.no_grad()
    def set_constant(self, variance: Tensor) -> None:
        """Set constant noise of given variances, (K,), as certain as T examples would leave it."""
        self.mean.zero_()
        self.mean[:, -1] = variance.log().to(self.mean.dtype)
        given = self.prior.variance
        precision = 0.5 * self.num_data + (0.0 if isinstance(given, str) else 1 / given)
        self._initialize_covariance(1 / precision)
