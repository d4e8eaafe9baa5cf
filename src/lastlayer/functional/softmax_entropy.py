r"""Mean entropy of softmax, and entropy of its mean, under independent Gaussian logits, quickly.

The integral of `expected_entropy_of_softmax` with few nodes, and one exponential per node and
class. With F the distribution function of N(m, v) + Gumbel and A = −log F, log A is nearly a
polynomial in the scaled value u, exactly a straight line at v = 0. The slopes of log A matter here
and the tails of the maximum: the four nodes and cubics of `quick_softmax` were off by 0.01 nats.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

EULER = 0.5772156649015329
SCALE, BEND = 0.7549, 0.3  # of u and z as functions of the variance
# log A in powers of u (rows) and 1, 1 − z, (1 − z) z, … (columns) with z = 1/(1 + BEND v), as
# benchmarks/softmax_constants.py fits them; last the right limit of u. Straight lines beyond.
COEFFICIENTS = (
    (-EULER, 0.21186784, 0.17932742, 0.091395084, 0.47802787, -0.85142176, 0.65488218),
    (-1.0, 0.0020630714, -0.080094038, 0.8754108, -2.3954015, 2.5546994, -1.1879094),
    (0.0, -0.15642353, -0.072713311, -0.39141348, 0.36002583, -0.20192553, -0.085566151),
    (0.0, -0.022946561, 0.068333313, -0.59181647, 1.574894, -1.6195532, 0.72079985),
    (0.0, -0.00073350268, -0.025868554, 0.20201831, -0.49276282, 0.60950551, -0.30336455),
    (0.0, 0.00034887544, -0.0075123663, 0.04977712, -0.081821382, 0.019561463, 0.019722718),
    (0.0, -2.6105435e-05, 0.0019068618, -0.011596152, 0.021849668, -0.015061636, 0.0029445626),
    (10.14, -5.44, -4.6, 0.0, 0.0, 0.0, 0.0),
)
LEFT = -3.2  # limit of u
LEAST_SLOPE = -0.02  # so that A falls everywhere
HIGHEST = 8.0  # of log A: exp(−A) is zero
ROUGH = -0.8  # u³ by the square of that of u², in the coarse grid: monotone
NUM_COARSE, NUM_NODES = 6, 9
WIDTH = 3.7  # standard deviations on either side
LOGITS_AT_ONCE = 1 << 14  # examples times classes: the cache holds them at all nodes


def quick_entropy_of_softmax(mean: Tensor, variance: Tensor) -> Tensor:
    r"""Mean entropy of softmax under independent Gaussian logits.

    The formula is that of `expected_entropy_of_softmax`; but S = Σ_j A_j at the maximum M of logits
    and Gumbel noise is exponentially distributed whatever the variances, so that
    E[LSE] = E[M + log S(M)], which is constant in M at v = 0.

    Args:
        mean: Mean of the logits, (*batch, K).
        variance: Variance of the logits, (*batch, K).

    Returns:
        Nats, (*batch,).
    """
    return _in_parts(_mean_entropy, mean, variance)


def quick_entropy_of_mean_softmax(mean: Tensor, variance: Tensor) -> Tensor:
    r"""Entropy of the mean of softmax under independent Gaussian logits.

    By the same nodes as the mean entropy, to subtract that from: `quick_softmax` is not as
    accurate as small differences need.

    Args:
        mean: Mean of the logits, (*batch, K).
        variance: Variance of the logits, (*batch, K).

    Returns:
        Nats, (*batch,).
    """
    return _in_parts(_entropy_of_mean, mean, variance)


def _in_parts(rule: Callable[[Tensor, Tensor], Tensor], mean: Tensor, variance: Tensor) -> Tensor:
    """A rule applied to as many examples at once as the cache holds."""
    num_rows = max(1, LOGITS_AT_ONCE // mean.shape[-1])
    if torch.compiler.is_compiling() or mean[..., 0].numel() <= num_rows:
        return rule(mean, variance)
    means = mean.flatten(0, -2).split(num_rows)
    variances = variance.expand_as(mean).flatten(0, -2).split(num_rows)
    parts = [rule(*pair) for pair in zip(means, variances, strict=True)]
    return torch.cat(parts).unflatten(0, mean.shape[:-1])


class _Classes(NamedTuple):
    """log A of every class as a function of the value, (*batch, K) each."""

    scale: Tensor
    shift: Tensor
    powers: Tensor  # coefficients of u⁰, u¹, …, and the right limit of u


def exponents_of(mean: Tensor, variance: Tensor) -> _Classes:
    """What `exponents` needs of means and variances (*batch, K)."""
    z = (1 + BEND * variance).reciprocal()
    scale = (1 + SCALE * variance).rsqrt()
    powers = [torch.ones_like(z), BEND * variance * z]
    for _ in range(len(COEFFICIENTS[0]) - 2):
        powers.append(powers[-1] * z)
    table = torch.tensor(COEFFICIENTS, dtype=z.dtype, device=z.device)
    rows = table @ torch.stack(powers).flatten(1)
    return _Classes(scale, (mean + EULER) * scale, rows.unflatten(1, z.shape))


def inner_exponents(classes: _Classes, nodes: Tensor) -> Tensor:
    """A = −log F at nodes (nodes, *batch, 1) that are not in its tails, (nodes, *batch, K)."""
    *lower, highest, right = classes.powers
    u = nodes * classes.scale - classes.shift
    inside = u.clamp_min(LEFT).minimum(right)
    height = highest
    for power in reversed(lower):
        height = torch.addcmul(power, height, inside)
    return torch.sub(height, u - inside).clamp_max(HIGHEST).exp()


def exponents(classes: _Classes, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """A = −log F and −A′ at nodes (nodes, *batch, 1), each (nodes, *batch, K)."""
    *lower, second, highest, right = classes.powers
    u = nodes * classes.scale - classes.shift
    inside = u.clamp_min(LEFT).minimum(right)
    height = torch.addcmul(second, highest, inside)
    slope = torch.addcmul(height, highest, inside)
    for power in reversed(lower[1:]):
        height = torch.addcmul(power, height, inside)
        slope = torch.addcmul(height, slope, inside)
    height = torch.addcmul(lower[0], height, inside)
    slope = slope.clamp_max(LEAST_SLOPE)
    height = torch.addcmul(height, u - inside, slope)
    exponent = height.clamp_max(HIGHEST).exp()
    return exponent, exponent * slope * -classes.scale


def _nodes(mean: Tensor, variance: Tensor, classes: _Classes) -> tuple[Tensor, Tensor]:
    """Nodes and weights, (NUM_NODES, *batch, 1), of the trapezoid rule over the maximum.

    As in `expected_softmax`: equally spaced where the maximum is about normal, by a coarse grid of
    A that is cubic in u and monotone.
    """
    like: dict[str, Any] = {"dtype": mean.dtype, "device": mean.device}
    shape = (-1, *[1] * mean.dim())
    lowest = (mean + EULER - (7 + 12 * variance).sqrt()).amax(-1, keepdim=True)
    highest = (mean + EULER + (169 + 26 * variance).sqrt()).amax(-1, keepdim=True)
    fraction = torch.linspace(0, 1, NUM_COARSE, **like).reshape(shape)
    coarse = lowest + (highest - lowest) * (fraction * (0.2 + 0.8 * fraction))
    u = coarse * classes.scale - classes.shift  # (coarse, *batch, K)
    bend = classes.powers[2].clamp_max(0)
    cubic = torch.addcmul(bend, ROUGH * bend.square(), u)
    height = classes.powers[0] - u + u.square() * cubic
    cdf = (-height.exp().sum(-1, keepdim=True)).exp()  # (coarse, *batch, 1)
    normal = torch.special.ndtri(cdf.clamp(1e-6, 1 - 1e-6))

    step, rise = coarse.diff(dim=0), normal.diff(dim=0)
    slope = torch.where(rise > 1e-3, step / rise.clamp_min(1e-3), 0)  # else cut off at 1e-6
    start = coarse[0] + torch.where(normal[1:] < -4.75, step, 0).sum(0)
    deviation = torch.linspace(-WIDTH, WIDTH, NUM_NODES, **like).reshape(shape)
    bends = slope.diff(dim=0)
    corner = 2 * (deviation.unsqueeze(1) - normal[1:-1])  # (nodes, coarse − 2, *batch, 1)
    nodes = start + slope[0] * (deviation - normal[0]) + (bends * F.softplus(corner)).sum(1) / 2
    return nodes, slope[0] + (bends * corner.sigmoid()).sum(1)


class _Terms(NamedTuple):
    """The integral at its nodes, (nodes, *batch, 1), and by class, (nodes, *batch, K)."""

    nodes: Tensor
    weights: Tensor  # times exp(−S)
    total: Tensor  # S = Σ_j A_j
    hazard: Tensor  # −A′ = f/F


def _terms(mean: Tensor, variance: Tensor) -> _Terms:
    classes = exponents_of(mean, variance)
    nodes, weights = _nodes(mean, variance, classes)
    exponent, hazard = exponents(classes, nodes)
    total = exponent.sum(-1, keepdim=True)
    return _Terms(nodes, weights * (-total).exp(), total, hazard)


def _mean_entropy(mean: Tensor, variance: Tensor) -> Tensor:
    nodes, weights, total, hazard = _terms(mean, variance)
    hazards = hazard.sum(-1, keepdim=True)
    value = nodes + total.log() - mean - variance * (hazards - hazard)
    value = (value * hazard).sum(-1, keepdim=True)
    entropy = (weights * value).sum(0) / (weights * hazards).sum(0)
    return entropy.squeeze(-1)


def _entropy_of_mean(mean: Tensor, variance: Tensor) -> Tensor:
    terms = _terms(mean, variance)
    probs = (terms.weights * terms.hazard).sum(0)
    probs = (probs / probs.sum(-1, keepdim=True)).clamp_min(1e-30)  # adds nothing
    return -(probs * probs.log()).sum(-1)
