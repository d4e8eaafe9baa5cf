r"""Mixtures of Gaussians with one mean and many variances; tensors only.

A target $y = \mu + \sqrt V\,z$ with $z \sim N(0, 1)$ and a random variance V: noise of which the
variance is uncertain, or has heavy tails. V is given by quadrature, as variances $V_c$ of
probability $p_c$, in the last dimension; all functions are of distances from the mean.
"""

import torch
from torch import Tensor

from .crps import expected_absolute
from .numerics import LOG_2PI

NUM_NODES = 49  # of a normal variable, by the trapezoidal rule
REACH = 7.0  # in its standard deviations, beyond which there is 3e-12 of its mass
NUM_POINTS = 64  # of the target, where the distribution itself is integrated
NUM_BISECTIONS, NUM_NEWTON = 12, 5  # of a quantile: sure first, then fast


def normal_nodes(like: Tensor) -> tuple[Tensor, Tensor]:
    r"""Nodes z of a standard normal variable and their log-probabilities, (NUM_NODES,) each.

    The trapezoidal rule converges exponentially for analytic functions: with these steps a function
    of $e^{\tau z}$ that is analytic in the right half-plane is integrated to 1e-6 for τ below 2.
    """
    nodes = torch.linspace(-REACH, REACH, NUM_NODES, dtype=like.dtype, device=like.device)
    return nodes, (-0.5 * nodes.square()).log_softmax(0)


def log_density(distance: Tensor, variances: Tensor, log_probs: Tensor) -> Tensor:
    """Log-density at a distance from the mean, (*shape).

    Args:
        distance: (*shape).
        variances: V_c, (*shape, C).
        log_probs: log p_c, of a shape that broadcasts to (*shape, C).
    """
    squares = distance.unsqueeze(-1).square() / variances
    return (log_probs - 0.5 * (squares + variances.log() + LOG_2PI)).logsumexp(-1)


def tail_mass(distance: Tensor, variances: Tensor, log_probs: Tensor) -> Tensor:
    """Probability to lie beyond a distance, on one side, (*shape); arguments as `log_density`."""
    scores = distance.unsqueeze(-1) * (2 * variances).rsqrt()
    return 0.5 * (log_probs.exp() * torch.erfc(scores)).sum(-1)


def tail_distance(mass: Tensor, variances: Tensor, log_probs: Tensor) -> Tensor:
    """The distance beyond which there is a given mass on one side, (*shape).

    Bisection of its logarithm, between the distances of the narrowest and the widest component,
    and Newton steps on the logarithm of the mass.

    Args:
        mass: above 0 and at most one half, of a shape that broadcasts to (*shape).
        variances: V_c, (*shape, C).
        log_probs: log p_c.
    """
    tiny = torch.finfo(variances.dtype).tiny
    score = (-torch.special.ndtri(mass)).clamp_min(tiny**0.5).to(variances.dtype)
    ends = 0.5 * torch.stack([variances.amin(-1), variances.amax(-1)]).clamp_min(tiny).log()
    lower, upper = (ends + score.log()).unbind()
    for _ in range(NUM_BISECTIONS):
        middle = 0.5 * (lower + upper)
        inside = tail_mass(middle.exp(), variances, log_probs) > mass
        lower, upper = middle.where(inside, lower), upper.where(inside, middle)
    log_distance = 0.5 * (lower + upper)
    for _ in range(NUM_NEWTON):
        distance = log_distance.exp()
        beyond = tail_mass(distance, variances, log_probs)
        density = log_density(distance, variances, log_probs).exp()
        slope = (density * distance / beyond).clamp_min(tiny)
        log_distance = log_distance + (beyond.log() - mass.log()) / slope
        log_distance = log_distance.clamp(lower, upper)
    return log_distance.exp()


def scale_mixture_crps(distance: Tensor, variances: Tensor, log_probs: Tensor) -> Tensor:
    r"""Continuous ranked probability score of targets at a distance from the mean, (*shape).

    $$E|y - Y| - \tfrac12 E|Y - Y'|, \qquad \tfrac12 E|Y - Y'| = 2\int_0^\infty F(-x)F(x)\,dx$$
    """
    to_target = expected_absolute(distance.unsqueeze(-1), variances.sqrt())
    points, steps = spread_distances(variances, log_probs)
    masses = tail_mass(points, variances, log_probs)
    return (log_probs.exp() * to_target).sum(-1) - 2 * (steps * masses * (1 - masses)).sum(0)


def scale_mixture_entropy(variances: Tensor, log_probs: Tensor) -> Tensor:
    """Differential entropy in nats, (*shape)."""
    points, steps = spread_distances(variances, log_probs)
    log_densities = log_density(points, variances, log_probs)
    return -2 * (steps * log_densities.exp() * log_densities).sum(0)


def spread_distances(variances: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Distances x = s sinh θ at even steps of θ, from zero to where next to no mass is left.

    Returns:
        Distances and their weights in the trapezoidal rule, (NUM_POINTS, *shape) each.
    """
    stddev = (0.5 * (log_probs.exp() * variances.log()).sum(-1)).exp()
    unlikely = log_probs < -0.5 * REACH**2
    widest = variances.masked_fill(unlikely.expand_as(variances), 0).amax(-1).sqrt()
    end = (10 * widest / stddev).asinh()
    shares = torch.linspace(0, 1, NUM_POINTS, dtype=end.dtype, device=end.device)
    angles = shares.reshape(-1, *[1] * end.ndim) * end
    weights = torch.where(shares == 0, 0.5, 1.0).reshape(-1, *[1] * end.ndim)
    return stddev * angles.sinh(), weights * stddev * angles.cosh() * end / (NUM_POINTS - 1)
