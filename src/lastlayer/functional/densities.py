"""Log-densities of features under Gaussian classes, with matrix products alone."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .numerics import LOG_2PI

# Classes whose log-density is recomputed without cancellation; see `gaussian_log_densities`.
NUM_REFINED = 4


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
    if densities.dtype != torch.float64:
        densities = _refined(densities, flat, mean, precision)
    return densities.reshape(*features.shape[:-1], len(mean))


class GaussianPrecision(NamedTuple):
    """Inverses of K covariance matrices, diag(diagonal_k) − factor_kᵀ factor_k."""

    diagonal: Tensor  # (K, N)
    factor: Tensor | None  # (K, r, N)
    logdet: Tensor  # log-determinants of the inverses, (K,)


def gaussian_log_densities(
    features: Tensor, mean: Tensor, precision: GaussianPrecision, *, refine: bool | None = None
) -> Tensor:
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
        refine: whether to compute the likeliest classes again; None for unless in double precision,
            where expanding loses no more than what remains of 16 digits after the squared distance
            of classes in standard deviations.

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
    if refine or (refine is None and densities.dtype != torch.float64):
        densities = _refined(densities, flat, mean, precision)
    return densities.reshape(*features.shape[:-1], num_classes)


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


def with_unobserved_classes(log_joint: Tensor, log_odds: Tensor, known: Tensor) -> Tensor:
    r"""Let features say nothing for or against classes of which there was no example.

    The density of such a class u is taken to be that of all known classes together, so that its
    probability is that of its prior, whatever the features.

    $$\log p(\phi, u) = \log o_u + \mathrm{LSE}_{k\text{ known}}\log p(\phi, k)$$

    Args:
        log_joint: log p(φ, y = k), (*batch, K).
        log_odds: log o_k, of a class against all known ones together, (K,).
        known: whether there were examples of a class, (K,); of one at least.

    Returns:
        log p(φ, y = k), (*batch, K).
    """
    density = log_joint.masked_fill(~known, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.where(known, log_joint, density + log_odds.to(density.dtype))
