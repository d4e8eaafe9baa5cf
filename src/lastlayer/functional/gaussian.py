"""Gaussian last layers: expected log-likelihood, divergence, prior of the noise."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .numerics import LOG_2PI, at_least_float32

MIN_PRIOR_VARIANCE = 1e-10  # where data say nothing of the weights, the best s is zero


def expected_gaussian_log_density(squares: Tensor, log_precision_scale: Tensor) -> Tensor:
    r"""Expected log-likelihood under a Gaussian last layer (paper, theorem 1 and appendix A).

    $$E_q[\log N(y|W\phi,\Sigma)] = \log N(y|\bar W\phi,\Sigma)
      - \tfrac12\operatorname{tr}(\Sigma^{-1}\operatorname{Cov}(W\phi))$$

    Args:
        squares: the terms of (y − W̄φ)ᵀΣ⁻¹(y − W̄φ) + tr(Σ⁻¹ Cov(Wφ)), (*batch, K); the trace
            has φᵀS_kφ (Σ⁻¹)_kk if the rows of W are independent of the noise, and φᵀS_kφ if
            their covariance is Σ.
        log_precision_scale: log L_kk with Σ⁻¹ = LLᵀ, (K,).

    Returns:
        One term per output, (*batch, K); their sum is the bound. With diagonal Σ each term is
        that output's own expected log-likelihood.
    """
    return torch.add(log_precision_scale - 0.5 * LOG_2PI, squares, alpha=-0.5)


def gaussian_kl(
    squared_mean: Tensor, trace: Tensor, logdet: Tensor, num_weights: int, prior_variance: float
) -> Tensor:
    r"""Divergence of the Gaussian posterior from its isotropic prior, every constant kept.

    $$KL(N(\bar w,S)\,\|\,N(0,sI)) = \tfrac12\big(\|\bar w\|^2/s + \operatorname{tr}S/s
      - N + N\log s - \log|S|\big)$$

    Args:
        squared_mean: ‖w̄_k‖² summed over outputs, ().
        trace: tr S_k summed over outputs, ().
        logdet: log|S_k| summed over outputs, ().
        num_weights: N for each output.
        prior_variance: s.

    Returns:
        The sum over outputs, ().
    """
    constant = 0.5 * num_weights * (math.log(prior_variance) - 1)
    total = torch.sub(squared_mean + trace, logdet, alpha=prior_variance)
    return torch.add(constant, total, alpha=0.5 / prior_variance)


def grouped_gaussian_kl(
    squares: Sequence[Tensor],
    logdet: Tensor,
    num_weights: Sequence[int],
    prior_variances: Sequence[Tensor | float],
) -> Tensor:
    r"""Divergence of the Gaussian posterior from a prior with a variance for each group of weights.

    $$KL = \tfrac12\Big(\sum_g q_g/s_g + n_g\log s_g - n_g\Big) - \tfrac12\sum_k\log|S_k|$$

    Args:
        squares: q_g, the expected sum of squares of a group's weights, () each.
        logdet: log|S_k| summed over outputs, ().
        num_weights: n_g.
        prior_variances: s_g.

    Returns:
        The divergence of all groups together, ().
    """
    total = -logdet
    for square, count, variance in zip(squares, num_weights, prior_variances, strict=True):
        log = variance.log() if isinstance(variance, Tensor) else math.log(variance)
        total = total + (square / variance + count * (log - 1))
    return 0.5 * total


def best_prior_variance(squares: Tensor, num_weights: int) -> Tensor:
    r"""The prior variance at which the divergence is least: $s = q/n$, not below a tiny number.

    Args:
        squares: q = Σ_k ‖w̄_k‖² + tr S_k, the expected sum of squares of the weights, ().
        num_weights: n.

    Returns:
        The variance, ().
    """
    return (squares / num_weights).clamp_min(MIN_PRIOR_VARIANCE)


def inverse_wishart_exponent(dof: float, dimension: int) -> float:
    r"""Power of the determinant in the inverse-Wishart density, ν + N + 1 (paper, appendix B).

    $$p(\Sigma) \propto |\Sigma|^{-(\nu+N+1)/2}\exp(-\tfrac12\operatorname{tr}M\Sigma^{-1})$$

    The mode is M / (ν + N + 1), so the exponent counts like that many observations.

    Args:
        dof: ν.
        dimension: N, of Σ.

    Returns:
        The exponent; a proper prior has ν > N − 1, which is not required.
    """
    return dof + dimension + 1


def inverse_wishart_log_density(
    log_precision_scale: Tensor, precision_trace: Tensor, dof: float, scale: float
) -> Tensor:
    r"""Unnormalised inverse-Wishart log-density of the noise covariance (paper, appendix B).

    $$\log p(\Sigma) = \tfrac{\nu+N+1}{2}\log|\Sigma^{-1}| - \tfrac m2\operatorname{tr}\Sigma^{-1}$$

    Args:
        log_precision_scale: log L_kk with Σ⁻¹ = LLᵀ; half the log-determinant in all, (N,).
        precision_trace: tr Σ⁻¹, ().
        dof: ν.
        scale: m, of the scale matrix M = mI.

    Returns:
        A scalar.
    """
    exponent = inverse_wishart_exponent(dof, log_precision_scale.shape[-1])
    half_logdet = at_least_float32(log_precision_scale).sum()
    return torch.sub(exponent * half_logdet, precision_trace, alpha=0.5 * scale)
