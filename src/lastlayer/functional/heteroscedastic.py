"""Gaussian last layers whose noise has a log-variance that is itself a Gaussian last layer."""

import torch
from torch import Tensor

from .gaussian import inverse_wishart_exponent
from .numerics import LOG_2PI


def expected_root_precision(log_mean: Tensor, log_variance: Tensor) -> Tensor:
    r"""The root of the expected precision of noise with a Gaussian log-variance g ~ N(m, v).

    $$E[e^{-g}]^{1/2} = e^{(v/2 - m)/2}$$

    As a root, it keeps errors and variances of any units within the range of their dtype.

    Args:
        log_mean: m, (*batch, K).
        log_variance: v, (*batch, K).

    Returns:
        (*batch, K).
    """
    return (0.25 * log_variance - 0.5 * log_mean).exp()


def expected_heteroscedastic_log_density(
    error: Tensor, quadratic: Tensor, log_mean: Tensor, root_precision: Tensor
) -> Tensor:
    r"""Expected log-likelihood under a Gaussian last layer with Gaussian log-noise.

    $$E[\log N(y_k|w_k^\top\phi, e^{g_k})] = -\tfrac12\big(\log 2\pi + m_k
      + ((y_k - \bar w_k^\top\phi)^2 + \phi^\top S_k\phi)\,e^{v_k/2 - m_k}\big)$$

    Args:
        error: y − W̄φ, (*batch, K).
        quadratic: φᵀS_kφ, (*batch, K).
        log_mean: m, the mean of the log-variance of the noise, (*batch, K).
        root_precision: of `expected_root_precision`, (*batch, K).

    Returns:
        One term per output, (*batch, K).
    """
    white = error * root_precision
    squares = torch.addcmul(quadratic * root_precision * root_precision, white, white)
    return -0.5 * (squares + log_mean + LOG_2PI)


def expected_log_noise_prior(
    log_mean: Tensor, root_precision: Tensor, dof: float, scale: float
) -> Tensor:
    r"""Expected inverse-Wishart log-density of the noise of each example, unnormalised.

    $$-\tfrac12\sum_k (\nu + K + 1)\,m_k + m_\Sigma\,e^{v_k/2 - m_k}$$

    Its mean over examples is that of constant noise, if the noise is constant. For each example it
    counts like (ν + K + 1)/T of an observation with the squared error m_Σ/T, which is what keeps
    the noise above zero where there is none.

    Args:
        log_mean: m, (*batch, K).
        root_precision: of `expected_root_precision`, (*batch, K).
        dof: ν.
        scale: m_Σ, of the scale matrix.

    Returns:
        One term per output, (*batch, K).
    """
    exponent = inverse_wishart_exponent(dof, log_mean.shape[-1])
    return -0.5 * (exponent * log_mean + scale * root_precision * root_precision)
