r"""Log-probabilities of classes that are far behind, bounded from below; tensors only.

With F_k and f_k the distribution function and density of N(m_k, v_k) + Gumbel, the probability of
class k is $\int f_k \prod_{j \ne k} F_j\,dt$ (see `expected_softmax`). Far behind, the integrand is
large between the logits of the class and those of the others, where neither of them is likely.
"""

import math
from typing import Any

import torch
from torch import Tensor

# Standard Gumbel noise as a mixture of six normals, (weight, mean, standard deviation); least
# maximum error of the distribution function and of the density of "Gaussian + Gumbel" over Gaussian
# standard deviations from 0 to 10. The distribution function is off by at most 2.6e-4.
GUMBEL_MIXTURE = (
    (0.038772518, -1.132921704, 0.374313547),
    (0.196239434, -0.533733420, 0.468518003),
    (0.337389044, 0.174599170, 0.599011201),
    (0.282007622, 1.061613345, 0.791298161),
    (0.123955200, 2.257367701, 1.094211391),
    (0.021636183, 4.041653751, 1.647429562),
)
NUM_LEFT, NUM_RIGHT = 16, 3  # points of the bound beyond the nodes of the quadrature
SMALLEST = 1e-25  # that sums of erfc hold in single precision


def tail_log_probs(mean: Tensor, variance: Tensor, nodes: Tensor) -> Tensor:
    r"""Lower bound on the log-probabilities of classes under independent Gaussian logits.

    The integrand is log-concave in t, so that straight lines between points of its logarithm lie
    below it, and the integral of their exponential is closed:

    $$\log\int \ge \log\sum_i (t_{i+1} - t_i)\,\frac{e^{g_{i+1}} - e^{g_i}}{g_{i+1} - g_i}$$

    Points lie from the lowest of the means to where the largest logit is, and beyond.

    Args:
        mean: Mean of the logits, (*batch, K).
        variance: Variance of the logits, (*batch, K).
        nodes: Where the largest logit is, ascending, (*batch, num_nodes).

    Returns:
        Log-probabilities, (*batch, K), too small by about 0.2 and by up to two percent.
    """
    points = _points(mean.detach(), nodes)  # (*batch, points)
    log_cdf, log_density = _log_cdf_and_density(
        points.unsqueeze(-1) - mean.unsqueeze(-2), variance.unsqueeze(-2)
    )
    height = log_density + log_cdf.sum(-1, keepdim=True) - log_cdf  # (*batch, points, K)
    top = height[..., 1:, :].maximum(height[..., :-1, :])
    drop = height.diff(dim=-2).abs()
    # log of the mean of the exponential along a line, by its series where that is level
    steep = drop > 1e-3
    share = torch.where(steep, -torch.expm1(-drop) / drop.where(steep, 1), 1 - drop / 2)
    step = points.diff(dim=-1).clamp_min(torch.finfo(mean.dtype).tiny).unsqueeze(-1)
    return (top + share.log() + step.log()).logsumexp(-2)


def _points(mean: Tensor, nodes: Tensor) -> Tensor:
    """Points in ascending order, closer together towards where the largest logit is."""
    like: dict[str, Any] = {"dtype": mean.dtype, "device": mean.device}
    first, last = nodes[..., :1], nodes[..., -1:]
    behind = (first - mean.amin(-1, keepdim=True)).clamp_min(0)
    left = first - behind * torch.linspace(1, 0, NUM_LEFT + 1, **like)[:-1].square()
    right = last + (last - first) * 4.0 ** torch.arange(NUM_RIGHT, **like) / 2
    return torch.cat([left, nodes[..., :-1:4], last, right], -1)


def _log_cdf_and_density(value: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of distribution function and density of N(0, variance) + Gumbel, everywhere.

    The density is from the tilt f(x) = exp(v/2 − x) F(x − v) right of v, where that F is not
    small, and from the normals themselves left of it. F is from the asymptotic expansion of the
    error function where it would underflow.
    """
    scales = [(variance + spread**2).mul(2).rsqrt() for _, _, spread in GUMBEL_MIXTURE]
    centred = [
        (location - value) * scale
        for (_, location, _), scale in zip(GUMBEL_MIXTURE, scales, strict=True)
    ]
    least = torch.stack([part.detach().abs() for part in centred]).amin(0)
    common = least.square()  # taken out of all exponentials
    near, far, tilted, direct = (torch.zeros_like(value) for _ in range(4))
    for (weight, _, _), scale, part in zip(GUMBEL_MIXTURE, scales, centred, strict=True):
        exponential = weight * (common - part.square()).exp()
        near = near + weight / 2 * torch.erfc(part)
        tilted = tilted + weight / 2 * torch.erfc(part + variance * scale)
        direct = direct + exponential * scale
        inverse = part.clamp_min(1).reciprocal()
        far = far + exponential * inverse * (1 - inverse.square() / 2)
    constant = math.log(math.pi) / 2
    is_far = near < SMALLEST
    far = far.clamp_min(torch.finfo(far.dtype).tiny).log() - common - constant - math.log(2)
    log_cdf = torch.where(is_far, far, near.clamp_min(SMALLEST).log())
    direct = direct.clamp_min(torch.finfo(far.dtype).tiny).log() - common - constant
    tilt = variance / 2 - value + tilted.clamp_min(SMALLEST).log()
    return log_cdf, torch.where(value > variance, tilt, direct)
