"""The exact posterior of an agent's last layer, whose arms may share their noise."""

from __future__ import annotations

import torch
from torch import Tensor

from ..functional import inverse_wishart_exponent
from ..heads import Regression
from .retraining import Retraining


def set_to_prior(head: Regression) -> None:
    """Set the posterior of a head that has seen no data."""
    empty = head.mean.new_zeros(0, head.num_features), head.mean.new_zeros(0, len(head.mean))
    head.fit_exact(*empty)


def fit_posterior(
    head: Regression,
    data: tuple[Tensor, Tensor, Tensor],
    plan: Retraining,
    *,
    estimate_noise: bool,
) -> None:
    """Set the posterior given all the data, and with its noise if that is to be estimated.

    Args:
        head: with one covariance per output and diagonal noise.
        data: features (n, N), targets (n, K), and weights (n, K), zero but for the arm pulled.
        plan: how.
        estimate_noise: whether the noise is not the head's present one.
    """
    iterations = plan.noise_iterations
    head.fit_exact(*data, estimate_noise=estimate_noise, max_iterations=iterations)
    if estimate_noise and plan.common_noise:
        share_noise(head, data[2].sum(0))
        head.fit_exact(*data, max_iterations=iterations)


@torch.no_grad()
def share_noise(head: Regression, counts: Tensor) -> None:
    r"""Give all outputs one noise variance: the mode if they were known to share it.

    $$\sigma^2 = \frac{\sum_k (m + r_k)}{\sum_k (n_k + \nu + K + 1)}$$

    with the scatter $r_k$ of residuals and posterior that each output's own mode has.

    Args:
        head: whose noise is the mode of every output on its own.
        counts: n_k, how many observations each output has, (K,).
    """
    own = head.noise.variance().double()
    shares = counts.double() + inverse_wishart_exponent(head.prior.noise_dof, len(own))
    common = (shares * own).sum() / shares.sum()
    head.noise.assign(common.expand_as(own).diag_embed().to(head.mean))
