r"""The mathematics of the three last layers: pure functions of tensors.

Shapes are written as in `(*batch, K)`: any leading dimensions, K outputs or classes, N features.
Nothing here owns a parameter or inspects a value; modules call these functions and name the rest.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .softmax import expected_entropy_of_softmax as expected_entropy_of_softmax
from .softmax import expected_log_softmax as expected_log_softmax
from .softmax import expected_softmax as expected_softmax
from .softmax import tilted_coefficients as tilted_coefficients

LOG_2PI = math.log(2 * math.pi)

# Classes whose log-density is recomputed without cancellation; see `gaussian_log_densities`.
NUM_REFINED = 4


def at_least_float32(tensor: Tensor) -> Tensor:
    """Cast half precision up, so that sums, squares and logarithms keep their digits."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def widest(tensor: Tensor) -> Tensor:
    """Cast to double precision, where the device has it."""
    has_double = tensor.device.type != "mps"
    return tensor.double() if has_double and tensor.dtype != torch.float64 else tensor


def full_precision(like: Tensor) -> AbstractContextManager[None]:
    """Without autocast, where half precision would cancel or underflow."""
    if like.is_meta:  # has no autocast to disable
        return nullcontext()
    return torch.autocast(like.device.type, enabled=False)


def squared_sum(tensor: Tensor) -> Tensor:
    """Sum of squares of all entries, ()."""
    tensor = at_least_float32(tensor)
    if tensor.numel() < 2**16:
        return (tensor * tensor).sum()
    # the same, but backward is one pass over the data instead of three
    return F.mse_loss(tensor, tensor.new_zeros(()).expand_as(tensor), reduction="sum")


# ------------------------------------------------------------------------------- regression


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
    dimension = log_precision_scale.shape[-1]
    strength = dof + dimension + 1
    half_logdet = at_least_float32(log_precision_scale).sum()
    return torch.sub(strength * half_logdet, precision_trace, alpha=0.5 * scale)


# --------------------------------------------------------------- discriminative classification


def jensen_bound(logit_mean: Tensor, logit_variance: Tensor, target: Tensor) -> Tensor:
    r"""Bound on the expected log-softmax by Jensen's inequality (paper, theorem 2).

    $$E[\log\mathrm{softmax}_y(z)] \ge m_y - \mathrm{LSE}_k[m_k + \tfrac12 v_k]$$

    Args:
        logit_mean: m = W̄φ, (*batch, K).
        logit_variance: v_k = φᵀS_kφ + σ_k², (*batch, K).
        target: class indices y, (*batch,).

    Returns:
        One value per example, (*batch,).
    """
    upper = (logit_mean + 0.5 * logit_variance).logsumexp(-1)
    return _pick(logit_mean, target) - upper


def tilted_bound(logit_mean: Tensor, logit_variance: Tensor, target: Tensor) -> Tensor:
    r"""Tighter bound on the expected log-softmax (Knowles & Minka, 2011).

    $$E[\mathrm{LSE}(z)] \le \tfrac12\sum_k a_k^2v_k + \mathrm{LSE}_k[m_k + (\tfrac12 - a_k)v_k]$$

    It holds for every a, so a needs no gradient; a = 0 is `jensen_bound`.

    Args:
        logit_mean: m = W̄φ, (*batch, K).
        logit_variance: v_k = φᵀS_kφ + σ_k², (*batch, K).
        target: class indices y, (*batch,).

    Returns:
        One value per example, (*batch,), never below `jensen_bound`.
    """
    tilt = tilted_coefficients(logit_mean, logit_variance)
    return _pick(logit_mean, target) - _tilted_upper(logit_mean, logit_variance, tilt)


def _tilted_upper(mean: Tensor, variance: Tensor, tilt: Tensor) -> Tensor:
    upper = (mean + (0.5 - tilt) * variance).logsumexp(-1)
    return upper + 0.5 * (tilt.square() * variance).sum(-1)


def _pick(values: Tensor, target: Tensor) -> Tensor:
    return values.gather(-1, target.unsqueeze(-1)).squeeze(-1)


# ------------------------------------------------------------------- generative classification


def generative_bound(
    log_density: Tensor,
    expected_trace: Tensor,
    marginal_log_density: Tensor,
    concentration: Tensor,
    target: Tensor,
) -> Tensor:
    r"""Bound for Gaussian class densities with a Dirichlet class posterior (paper, theorem 3).

    $$\log N(\phi|\bar\mu_y,\Sigma) - \tfrac12\operatorname{tr}(\Sigma^{-1}S_y)
      + \psi(\alpha_y) - \psi(\alpha_*) + \log\alpha_*
      - \mathrm{LSE}_k[\log N(\phi|\bar\mu_k,\Sigma+S_k) + \log\alpha_k]$$

    Args:
        log_density: log N(φ | μ̄_y, Σ) of the true class, (*batch,).
        expected_trace: tr(Σ⁻¹S_k), (K,).
        marginal_log_density: log N(φ | μ̄_k, Σ + S_k), (*batch, K).
        concentration: α, (K,).
        target: class indices y, (*batch,).

    Returns:
        One value per example, (*batch,).
    """
    total = concentration.sum()
    of_class = concentration.digamma() - 0.5 * expected_trace
    constant = total.log() - total.digamma()
    evidence = (marginal_log_density + concentration.log()).logsumexp(-1)
    of_target = F.embedding(target, of_class.unsqueeze(-1)).squeeze(-1)
    return log_density + of_target + constant - evidence


def class_log_density(
    features: Tensor, mean: Tensor, target: Tensor, log_precision_scale: Tensor
) -> Tensor:
    r"""Log-density of the features under their own class, log N(φ | μ̄_y, diag σ²).

    Args:
        features: φ, (*batch, N).
        mean: μ̄, (K, N).
        target: class indices y, (*batch,).
        log_precision_scale: −log σ_n, (N,).

    Returns:
        One value per example, (*batch,).
    """
    error = (features - F.embedding(target, mean)) * log_precision_scale.exp()
    constant = log_precision_scale.sum() - 0.5 * features.shape[-1] * LOG_2PI
    return constant - 0.5 * error.square().sum(-1)


def class_log_densities(features: Tensor, mean: Tensor, log_precision_scale: Tensor) -> Tensor:
    r"""Log-densities of the features under every class, log N(φ | μ̄_k, diag σ²).

    Args:
        features: φ, (*batch, N).
        mean: μ̄, (K, N).
        log_precision_scale: −log σ_n, (N,).

    Returns:
        One value per class, (*batch, K).
    """
    flat, scale = features.reshape(-1, mean.shape[-1]), log_precision_scale.exp()
    center = mean.detach().mean(0)
    white, white_mean = (flat - center) * scale, (mean - center) * scale
    logdet = 2 * log_precision_scale.sum().expand(mean.shape[0])
    precision = GaussianPrecision(scale.square().expand_as(mean), None, logdet)
    bias = _log_normalizer(precision) - 0.5 * white_mean.square().sum(-1)
    squares = white.square().sum(-1, keepdim=True)  # the same for all classes
    densities = F.linear(white, white_mean, bias) - 0.5 * squares
    return _refined(densities, flat, mean, precision).reshape(*features.shape[:-1], len(mean))


class GaussianPrecision(NamedTuple):
    """Inverses of K covariance matrices, diag(diagonal_k) − factor_kᵀ factor_k."""

    diagonal: Tensor  # (K, N)
    factor: Tensor | None  # (K, r, N)
    logdet: Tensor  # log-determinants of the inverses, (K,)


def gaussian_log_densities(features: Tensor, mean: Tensor, precision: GaussianPrecision) -> Tensor:
    r"""Log-densities of the features under K Gaussians, with matrix products alone.

    The quadratic is expanded, $w(\phi-\mu)^2 = w\phi^2 - 2w\mu\phi + w\mu^2$, which costs as
    much as a linear layer but cancels where the means are far apart. So features and means are
    centred first, and the few likeliest classes are computed again without expanding, in the dtype
    of the precision. They decide probabilities and gradients, if no more than NUM_REFINED classes
    lie so close together that rounding hides which is likelier: predictions, which may not assume
    that, call this in double precision.

    Args:
        features: φ, (*batch, N).
        mean: μ_k, (K, N), of the same dtype.
        precision: the inverse covariances.

    Returns:
        log N(φ | μ_k, ·), (*batch, K).
    """
    num_classes, num_features = mean.shape
    flat = features.reshape(-1, num_features)
    diagonal = precision.diagonal.to(flat.dtype)
    center = mean.detach().mean(0)
    centered, centered_mean = flat - center, mean - center
    linear = diagonal * centered_mean  # (K, N)
    bias = _log_normalizer(precision) - 0.5 * (linear * centered_mean).sum(-1)
    densities = torch.addmm(bias, -0.5 * centered.square(), diagonal.mT)
    densities = torch.addmm(densities, centered, linear.mT)
    if precision.factor is not None:
        factor = precision.factor.to(flat.dtype)
        shift = (factor * centered_mean.unsqueeze(1)).sum(-1)  # (K, r)
        products = F.linear(centered, factor.flatten(0, 1), -shift.flatten())
        squares = products.square().unflatten(-1, (num_classes, factor.shape[1])).sum(-1)
        densities = densities + 0.5 * squares
    return _refined(densities, flat, mean, precision).reshape(*features.shape[:-1], num_classes)


def _log_normalizer(precision: GaussianPrecision) -> Tensor:
    """Log-densities at the means, (K,)."""
    return 0.5 * (precision.logdet - precision.diagonal.shape[-1] * LOG_2PI)


def _refined(
    densities: Tensor, features: Tensor, mean: Tensor, precision: GaussianPrecision
) -> Tensor:
    """Log-densities (batch, K), those of the likeliest classes again and without expanding."""
    likely = densities.detach().topk(min(NUM_REFINED, len(mean)), -1).indices
    exact = F.embedding(likely, _log_normalizer(precision).unsqueeze(-1)).squeeze(-1)
    exact = exact - 0.5 * _quadratics(features, mean, precision, likely)
    return densities.scatter(-1, likely, exact)


def _quadratics(
    features: Tensor, mean: Tensor, precision: GaussianPrecision, chosen: Tensor
) -> Tensor:
    """(φ − μ_k)ᵀ P_k (φ − μ_k) of the chosen classes, directly, (batch, chosen)."""
    error = features.unsqueeze(1) - F.embedding(chosen, mean)  # (batch, chosen, N)
    wide = error.to(precision.diagonal.dtype)
    quadratic = (wide * wide * F.embedding(chosen, precision.diagonal)).sum(-1)
    if precision.factor is not None:
        factor = F.embedding(chosen, precision.factor.flatten(1))
        factor = factor.unflatten(-1, precision.factor.shape[1:])
        quadratic = quadratic - (factor @ wide.unsqueeze(-1)).square().sum((-2, -1))
    return quadratic.to(features.dtype)
