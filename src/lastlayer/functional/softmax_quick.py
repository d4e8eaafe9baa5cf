r"""Mean softmax under independent Gaussian logits, quickly; tensors only.

With F_k the distribution function of N(m_k, v_k) + Gumbel, A_k = −log F_k and S = Σ_j A_j, the
integral of `expected_softmax` is, by parts and with S itself as the variable,

$$E[\mathrm{softmax}_k] = -\int A_k'(t)\,e^{-S(t)}\,dt = \int_0^\infty \frac{A_k}{S}\,S e^{-S}\,dS$$

the mean share of class k in S where S has the Gamma(2) distribution. The share is a smooth
function of log S, and constant without variance: four nodes of Gauss's rule do. To find them, log A
is a cubic in a scaled value; at the nodes it is of degree six, as in `softmax_entropy`.
"""

import functools
import math
from collections.abc import Callable
from operator import mul, sub
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .numerics import full_precision, is_traced
from .softmax_entropy import EULER, exponents_of, inner_exponents

# log₂ A + γ log₂ e is LINE b plus a cubic in b = (m + γ − t)/√(v + SPREAD), constant below LOWEST,
# whose coefficients (rows) are polynomials in r = 1/√(v + SPREAD) (columns) times 1/√SPREAD − r.
SPREAD, LOWEST = 2.0, -4.25
LINE = math.sqrt(SPREAD) * math.log2(math.e)
COEFFICIENTS = (  # benchmarks/softmax_constants.py fits them
    (0.426859039, 0.80883756, 0.480135832),
    (-0.633989447, 0.37179028, -1.81298759),
    (-0.404381249, -0.868966281, -1.0317026),
    (0.0910283832, -0.060662357, -0.400858961),
)
# Gauss's nodes and weights for log S where S has the Gamma(2) distribution
NODES = (-3.4113724435378527, -1.0304306333864115, 0.4385344908019645, 1.5064223963501866)
WEIGHTS = (0.00335228973974202, 0.16061308133589652, 0.6177618480722804, 0.21827278085208096)
# Nodes are interpolated between two points that one class alone decides, the largest of
# m + FACTOR (√(v + SPREAD) − √SPREAD) + OFFSET, one above all classes, and one at a FRACTION
FACTORS, OFFSETS, FRACTION = (-2.24, -0.488), (-1.551, 3.946), 0.118
NUM_COARSE = len(FACTORS) + 2
MOST_OUTSIDE = (0.2, 0.75)  # of a probability, at the outer nodes
MOST_BEYOND = 0.05  # nats that a log-probability is off where log A is not fitted
STEEPER = 3.0  # log A by b there, at most
MOST_IN_TAIL = 1e-4  # of a probability that may be replaced
LOGITS_AT_ONCE = 1 << 16  # examples times classes, of which all nodes are in memory
FEWEST_IN_PARTS = 1 << 13

Rule = Callable[[Tensor, Tensor, Any, Any], Tensor]


def quick_softmax(mean: Tensor, variance: Tensor) -> Tensor:
    r"""Mean of softmax under independent Gaussian logits, to about 1e-4.

    Args:
        mean: Mean of the logits, (*batch, K).
        variance: Variance of the logits, (*batch, K).

    Returns:
        Probabilities, (*batch, K).
    """
    return _in_parts(_softmax, mean, variance)


def quick_log_softmax(mean: Tensor, variance: Tensor) -> Tensor:
    r"""Logarithm of `quick_softmax`, and not a number where that cannot be relied on.

    Far behind, a class is likeliest to win where there are no nodes, or where A is smaller than
    it was fitted.

    Args:
        mean: Mean of the logits, (*batch, K).
        variance: Variance of the logits, (*batch, K).

    Returns:
        Log-probabilities or nan, (*batch, K).
    """
    return _in_parts(_log_softmax, mean, variance)


def _in_parts(rule: Rule, mean: Tensor, variance: Tensor) -> Tensor:
    """A rule for (examples, K) applied to any batch, to so many examples at once."""
    if not mean.is_meta and torch.is_autocast_enabled(mean.device.type):
        with full_precision(mean):
            return _in_parts(rule, mean, variance)
    batch, num_classes = mean.shape[:-1], mean.shape[-1]
    means = mean.reshape(math.prod(batch), num_classes)
    variances = variance.expand_as(mean).reshape(means.shape)
    traced = is_traced(mean, variance)
    constants = (_constants if traced else _kept_constants)(num_classes, mean.dtype, mean.device)
    if traced or mean.numel() <= FEWEST_IN_PARTS:
        values = rule(means, variances, constants, NONE)
        return values.reshape(*batch, *values.shape[1:])
    num_rows = max(1, LOGITS_AT_ONCE // num_classes)
    memory = None
    if not (torch.is_grad_enabled() and (mean.requires_grad or variance.requires_grad)):
        memory = mean.new_empty(sum(SCRATCH) * min(num_rows, len(means)) * num_classes)
    parts: list[Tensor] = []
    for part in zip(means.split(num_rows), variances.split(num_rows), strict=True):
        scratch = NONE if memory is None else _scratch(memory, part[0])
        parts.append(rule(*part, constants, scratch))
    values = parts[0] if len(parts) == 1 else torch.cat(parts)
    return values.reshape(*batch, *values.shape[1:])


# ---------------------------------------------------------------------------------- constants


class _Constants(NamedTuple):
    """Constants as tensors; where the nodes are looked for depends on the number of classes."""

    coefficients: Tensor  # of log A
    factors: Tensor  # of the widths of classes, for the values of which the largest are taken
    offsets: Tensor  # of the coarse points and the steps between them,
    places: Tensor  # which are linear functions of the largest values
    nodes: Tensor  # γ + log S
    weights: Tensor  # of the nodes, if they are right,
    slopes: Tensor  # and by where they are
    line: Tensor  # LINE and
    root: Tensor  # 1/√SPREAD: numbers would lose digits where they are exported


def _weight_slopes() -> list[list[float]]:
    """Derivatives of weights (rows) by nodes (columns) that leave cubics integrated exactly.

    They are −w_j times the slopes of Lagrange's i-th polynomial at node j.
    """
    rows = []
    for here in NODES:
        others = [node for node in NODES if node != here]
        row = []
        for there, weight in zip(NODES, WEIGHTS, strict=True):
            terms = [math.prod(there - n for n in others if n != left) for left in others]
            row.append(-weight * sum(terms) / math.prod(here - node for node in others))
        rows.append(row)
    return rows


SHIFTED_NODES = [node + EULER for node in NODES]  # γ + log S
SLOPES = _weight_slopes()
INTERCEPTS = [
    [weight - sum(map(mul, row, SHIFTED_NODES))]
    for weight, row in zip(WEIGHTS, SLOPES, strict=True)
]
PLACES = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1 - FRACTION, FRACTION], [0.0, 0.0, 1.0]]
PLACES += [list(map(sub, *pair)) for pair in zip(PLACES[1:], PLACES[:-1], strict=True)]


def _constants(num_classes: int, dtype: torch.dtype, device: torch.device) -> _Constants:
    # where all classes together have S below the first node
    level = math.log(num_classes) - NODES[0]
    factor, root = math.sqrt(2 * level) - 0.62, math.sqrt(SPREAD)
    first, second = OFFSETS[0] - FACTORS[0] * root, OFFSETS[1] - FACTORS[1] * root
    offsets = [first - EULER, second - EULER, level - factor * root - EULER]
    shifts = [[row[0] * offsets[0] + row[1] * offsets[1] + row[2] * offsets[2]] for row in PLACES]

    def made(values: object) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return _Constants(
        made(COEFFICIENTS),
        made([FACTORS[0], FACTORS[1], factor])[:, None, None],
        made(shifts),
        made(PLACES),
        made(SHIFTED_NODES)[:, None, None, None],
        made(INTERCEPTS),
        made(SLOPES),
        made(LINE),
        made(SPREAD**-0.5),
    )


@functools.lru_cache
def _kept_constants(num_classes: int, dtype: torch.dtype, device: torch.device) -> _Constants:
    with torch.inference_mode(False):
        return _constants(num_classes, dtype, device)


class _Scratch(NamedTuple):
    """Memory that is used again: else the system's pages come and go with every tensor."""

    wide: Tensor | None
    scale: Tensor | None
    shift: Tensor | None
    cubic: Tensor | None
    first: Tensor | None
    second: Tensor | None
    third: Tensor | None
    three: Tensor | None  # of the first


SCRATCH = (1, 1, 1, 4, 4, 4, 4)
NONE = _Scratch(None, None, None, None, None, None, None, None)


def _scratch(memory: Tensor, like: Tensor) -> _Scratch:
    """The memory in parts, for tensors like the one given and for some of them stacked."""
    used = memory[: sum(SCRATCH) * like.numel()].view(-1, *like.shape)
    parts = [part if len(part) > 1 else part[0] for part in used.split(SCRATCH)]
    wide, scale, shift, cubic, first, second, third = parts
    return _Scratch(wide, scale, shift, cubic, first, second, third, first[:3])


# ---------------------------------------------------------------------------------- the rule


class _Classes(NamedTuple):
    """log A of every class as a function of the value, (examples, K) each."""

    scale: Tensor
    shift: Tensor
    cubic: tuple[Tensor, ...]
    line: Tensor
    coarse: Tensor  # points between which the nodes are, (NUM_COARSE, examples, 1)
    steps: Tensor  # from one to the next


def _classes(mean: Tensor, variance: Tensor, constants: _Constants, scratch: _Scratch) -> _Classes:
    wide = torch.add(variance, SPREAD, out=scratch.wide)
    scale = torch.rsqrt(wide, out=scratch.scale)
    first = constants.root - scale
    second = first * scale
    powers = torch.stack((first, second, second * scale), out=scratch.three)
    flat = None if scratch.cubic is None else scratch.cubic.flatten(1)
    cubic = torch.mm(constants.coefficients, powers.flatten(1), out=flat)
    width = torch.mul(wide, scale, out=scratch.wide)
    values = torch.addcmul(mean, width, constants.factors, out=scratch.three)
    placed = torch.addmm(constants.offsets, constants.places, values.amax(-1)).unsqueeze(-1)
    return _Classes(
        scale,
        torch.mul(mean, scale, out=scratch.shift),
        cubic.view(len(COEFFICIENTS), *mean.shape).unbind(),
        constants.line,
        *placed.split((NUM_COARSE, NUM_COARSE - 1)),
    )


def _exponents(classes: _Classes, nodes: Tensor, scratch: _Scratch) -> tuple[Tensor, Tensor]:
    """b and exp(γ) A = −exp(γ) log F at nodes (nodes, examples, 1), each (nodes, examples, K)."""
    lowest, linear, square, cube = classes.cubic
    behind = torch.addcmul(classes.shift, nodes, classes.scale, value=-1, out=scratch.first)
    inside = torch.clamp_min(behind, LOWEST, out=scratch.second)
    height = torch.addcmul(square, cube, inside, out=scratch.third)
    height = torch.addcmul(linear, height, inside, out=scratch.third)
    height = torch.addcmul(lowest, height, inside, out=scratch.third)
    return behind, torch.addcmul(height, behind, classes.line, out=scratch.third).exp2_()


class _Terms(NamedTuple):
    """What is added up, at the nodes."""

    behind: Tensor  # b, (nodes, examples, K)
    exponent: Tensor  # A, (nodes, examples, K)
    shares: Tensor  # weights over S, (nodes, examples, 1)


def _terms(
    mean: Tensor, variance: Tensor, classes: _Classes, constants: _Constants, scratch: _Scratch
) -> _Terms:
    # straight lines through coarse points lead to where log S is about that of Gauss's nodes
    height = _exponents(classes, classes.coarse, scratch)[1].sum(-1, keepdim=True).log()
    above = height[:-1]
    fall = above - height[1:]
    below = (above - constants.nodes).clamp_min(0).minimum(fall)
    nodes = (below * (classes.steps / fall.clamp_min(1e-6))).sum(1) + classes.coarse[0]
    behind = torch.addcmul(classes.shift, nodes, classes.scale, value=-1, out=scratch.first)
    # where the nodes are matters to second order, what is added up there does not
    exponent = inner_exponents(exponents_of(mean, variance), nodes + EULER)
    total = exponent.sum(-1)
    weights = torch.addmm(constants.weights, constants.slopes, total.log() + EULER).clamp_min(0)
    weights = weights / (total * weights.sum(0))
    return _Terms(behind, exponent, weights.unsqueeze(-1))


def _softmax(mean: Tensor, variance: Tensor, constants: _Constants, scratch: _Scratch) -> Tensor:
    classes = _classes(mean, variance, constants, scratch)
    terms = _terms(mean, variance, classes, constants, scratch)
    return torch.mul(terms.exponent, terms.shares, out=scratch.second).sum(0)


def _log_softmax(
    mean: Tensor, variance: Tensor, constants: _Constants, scratch: _Scratch
) -> Tensor:
    classes = _classes(mean, variance, constants, scratch)
    terms = _terms(mean, variance, classes, constants, scratch)
    parts = torch.mul(terms.exponent, terms.shares, out=scratch.second)
    probs = parts.sum(0)
    # below LOWEST the line falls too slowly, unless there is no variance
    beyond = (LOWEST - terms.behind).clamp_min(0) * parts
    nats = beyond.sum(0) * (STEEPER * (1 - SPREAD**0.5 * classes.scale))
    outside = (parts[0] > MOST_OUTSIDE[0] * probs) | (parts[-1] > MOST_OUTSIDE[1] * probs)
    tiny = torch.finfo(probs.dtype).tiny
    unknown = (outside | (nats > MOST_BEYOND * probs)) & (probs < MOST_IN_TAIL) | (probs < tiny)
    return torch.where(unknown, torch.nan, probs.clamp_min(tiny).log())
