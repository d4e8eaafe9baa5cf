"""A regression head whose prior is a buffer, and which tracks noise and covariance in training."""

from __future__ import annotations

import torch
from torch import Tensor

import lastlayer as ll
from lastlayer.functional import gaussian_kl, inverse_wishart_log_density
from lastlayer.heads._parts import record

# What is tracked beside the parts of the objective: Σ⁻¹, ‖S‖_F, and the mean of the diagonal of S.
TRACKED = ("noise_precision", "covariance_norm", "covariance_diagonal")


class SweptRegression(ll.Regression):
    """A head whose prior is a buffer, so that networks with different priors train as one.

    `fit_many` takes models that are alike but for parameters and buffers. The regularisers are
    linear in λ/s, λ, m and ν + N + 1, which the buffer holds; constants are left out.

    Args:
        num_features: N.
        num_data: T.
        prior: instead of the head's own, which only gives S its initial value.
    """

    pull: Tensor

    def __init__(self, num_features: int, *, num_data: int, prior: ll.Prior) -> None:
        super().__init__(num_features, num_data=num_data)
        exponent = prior.noise_dof + self.num_outputs + 1
        weight = prior.kl_weight
        pull = torch.tensor([weight / prior.fixed_variance, weight, prior.noise_scale, exponent])
        self.register_buffer("pull", pull)

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The objective under the prior of the buffer; what is tracked is recorded with it."""
        bound, *_ = super().objective(features, target, weight)
        covariance, noise = self.covariance.dense().squeeze(0), self.noise
        precision, logdet = noise.precision_trace(), self.covariance.logdet().sum()
        size, zero = self.mean.square().sum(), torch.zeros_like(logdet)
        by_size = gaussian_kl(size, self.covariance.trace().sum(), zero, 0, 1.0)
        by_logdet = gaussian_kl(zero, zero, logdet, 0, 1.0)
        dimension = self.num_outputs + 1
        by_scale = inverse_wishart_log_density(noise.log_precision_scale, precision, -dimension, 1)
        by_dof = inverse_wishart_log_density(noise.log_precision_scale, zero, 1 - dimension, 1)
        kl = self.pull[0] * by_size + self.pull[1] * by_logdet
        log_prior = self.pull[2] * by_scale + self.pull[3] * by_dof
        tracked = precision, covariance.norm(), covariance.diagonal().mean()
        record(self, **dict(zip(TRACKED, tracked, strict=True)))
        return bound, kl, log_prior
