"""Bounds on the expected log-probability of a label."""

import torch.nn.functional as F
from torch import Tensor

from .softmax import tilted_coefficients


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


BOUNDS = {"jensen": jensen_bound, "tilted": tilted_bound}
