"""Newton steps for a discriminative head on fixed features: one pass over the data each."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .._processes import num_rows, summed
from ..covariances import Covariance
from ..functional import inverse_wishart_exponent
from ..functional.bounds import BOUNDS
from ..functional.conjugate import eye_like

if TYPE_CHECKING:
    from ._softmax import SoftmaxHead
    from .discriminative import DiscriminativeClassification

NUM_PAIRS = 8  # steps that the secant correction remembers
CHUNK = 2**24  # numbers of one intermediate tensor


class Pass(NamedTuple):
    """Loss, and what the data say of its optimum, at the present parameters, in double precision.

    The prior is added when its variance is known; see `_with_prior`.
    """

    loss: float  # −ELBO/T
    gradient: Tensor  # of T · loss, by the mean, (K, N)
    curvature: Tensor  # of T · loss, by the mean, (1, KN, KN), (K, N, N) or (1, N, N)
    precision: Tensor  # Λ* of the stationary covariance or its diagonal, (K or 1, N, N) or (K, N)
    confidence: Tensor  # how far to go to Λ*, (K,), in (0, 1]
    noise_slope: Tensor  # of T · loss, by half the label noise σ_k², (K,)


class Examples(NamedTuple):
    """Features (T, num_features), labels (T,) and weights (T,), wherever they are stored."""

    features: Tensor
    target: Tensor
    weight: Tensor

    def chunks(self, head: SoftmaxHead) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Prepared features, labels and weights, as many at a time as fit."""
        like = head.mean
        rows = max(1, CHUNK // (head.num_outputs * min(head.width, 1024)))
        for parts in zip(*(values.split(rows) for values in self), strict=True):
            features, target, weight = (part.to(like.device) for part in parts)
            features = features.to(like.dtype)
            yield head._inputs(features), target, weight.to(like.dtype)


def newton(
    head: DiscriminativeClassification,
    data: Examples,
    kind: str,
    fixed: bool,
    max_passes: int,
    tolerance: float,
    report: Callable[[float], None],
) -> list[float]:
    """Move mean, covariance and noise together, halving steps that do not lower the loss.

    Args:
        head: of at least single precision.
        data: of the fit.
        kind: of curvature by the mean: "joint" of all weights, (1, KN, KN), "blocks" of each class,
            (K, N, N), or one "common" to all classes, (1, N, N).
        fixed: whether the covariance stays as it is, so that nothing is computed for it.
        max_passes: maximum number of passes over the data.
        tolerance: stops when the loss falls by less.
        report: called with the loss after each pass.

    Returns:
        The loss after each pass.
    """
    here = evaluate(head, data, kind, fixed)
    losses = [here.loss]
    check_initial(here.loss)
    report(here.loss)
    pairs: list[tuple[Tensor, Tensor]] = []
    precision = None if fixed else _precision(head)  # whose projection S is
    variance = head.prior_variance.double()
    while len(losses) < max_passes:
        before, length, new = copy.deepcopy(head.state_dict()), 1.0, here
        best = head.prior_variance.double()
        # beyond the best s for mean and S_k as they are, to where all three go
        variance = head.anticipated_variance(variance) if head.learns_prior else best
        while len(losses) < max_passes and length > 1e-6:
            target = _with_prior(head, here, variance)
            step = _direction(target, pairs, head.prior.kl_weight / variance)
            slope = float((target.gradient * step).sum()) / head.num_data
            moved = _move(head, target, step, precision, length)
            there = evaluate(head, data, kind, fixed)
            accepted = there.loss <= here.loss + 1e-4 * length * slope
            losses.append(there.loss if accepted else here.loss)
            report(losses[-1])
            if accepted:
                new, precision = there, moved
                break
            head.load_state_dict(before)
            if pairs or not torch.equal(variance, best):
                pairs, variance = [], best  # pairs are out of date, as the covariance has moved
            else:
                length /= 2
        if here.loss - new.loss < tolerance:
            break
        # the joint curvature is Newton's own; approximations of it learn from the last steps
        if kind != "joint":
            pairs = [*pairs, (length * step, new.gradient - here.gradient)][-NUM_PAIRS:]
        here = new
    return losses


def check_initial(loss: float) -> None:
    """Raise if there is no loss to begin with."""
    if not math.isfinite(loss):
        raise ValueError(
            f"the loss of the head is {loss} before the first step: features, weights or "
            "parameters hold NaN or infinite values, or features are so large that it overflows"
        )


@torch.no_grad()
def evaluate(head: DiscriminativeClassification, data: Examples, kind: str, fixed: bool) -> Pass:
    """One pass over the data."""
    covariance, (K, N) = head.covariance, head.mean.shape  # noqa: N806
    zeros = partial(torch.zeros, dtype=torch.float64, device=head.mean.device)
    total, gradient = zeros(()), zeros((K, N))
    shapes = {"joint": (K, N, N), "blocks": (K, N, N), "common": (1, N, N)}
    curvature = zeros(shapes[kind])
    outer = zeros((K * N, K * N)) if kind == "joint" else None
    matrix = (1 if covariance.shared else K, N, N)
    precision = zeros((K, N) if fixed or covariance.axis_aligned else matrix)
    slopes = zeros((3, K))
    for features, target, weight in data.chunks(head):
        loss, probs, slope, quadratic = _slopes(head, features, target, weight)
        total += loss
        # double: what is left of large features after the subtraction of outer has few digits
        features, probs, slope = features.double(), probs.double(), slope.double()
        weight, quadratic = weight.double(), quadratic.double()
        weighted = probs * weight[:, None]
        error = weighted.scatter_add(1, target[:, None], -weight[:, None])
        gradient += error.mT @ features
        if outer is not None:
            curvature += _grams(features, weighted)
            spread = (probs * weight.sqrt()[:, None]).unsqueeze(-1) * features.unsqueeze(1)
            outer += spread.flatten(1).mT @ spread.flatten(1)
        else:  # diag(p) − ppᵀ ≼ 2 diag(p(1 − p)), the sum of each row's absolute values
            curvature += _grams(features, _reduced(2 * weighted * (1 - probs), kind == "common"))
        if fixed or covariance.axis_aligned:
            precision += slope.mT @ features.square()
        else:
            precision += _grams(features, _reduced(slope, covariance.shared))
        bend = slope * (1 - probs) * quadratic.square()
        slopes += torch.stack([slope.sum(0), (slope * quadratic).sum(0), bend.sum(0)])
    total, gradient, curvature, precision, slopes = map(
        summed, (total, gradient, curvature, precision, slopes)
    )
    count = num_rows(len(data.target))
    scale = head.num_data / count
    if outer is not None:
        curvature = (torch.block_diag(*curvature) - summed(outer)).unsqueeze(0)
    # the secant of the fixed-point map along S_k: how much Λ* answers to a change of S_k
    confidence = 1 / (1 + 0.5 * slopes[2] / slopes[1].clamp_min(1e-30))
    return Pass(
        float(total) / count + regularizer(head),
        scale * gradient,
        scale * curvature,
        precision * (scale / head.prior.kl_weight),
        confidence.amin(0, keepdim=True) if covariance.shared else confidence,
        scale * slopes[0],
    )


def _with_prior(head: DiscriminativeClassification, here: Pass, variance: Tensor) -> Pass:
    """What data and prior say together, given the prior's variances (N,)."""
    ridge, precision = variance.reciprocal(), here.precision
    pull = head.prior.kl_weight * ridge
    return here._replace(
        gradient=here.gradient + pull * head._deviation().double(),
        curvature=here.curvature + pull.repeat(here.curvature.shape[-1] // len(pull)).diag_embed(),
        precision=precision + (ridge.diag_embed() if precision.ndim == 3 else ridge),
    )


def _slopes(
    head: DiscriminativeClassification, features: Tensor, target: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss of a chunk, (), p and c, its slopes by logits and half their variances, and φᵀSφ."""
    quadratic = head.covariance.quadratic(features)
    variance = quadratic if head.noise is None else quadratic + head.noise.variance()
    mean, variance = F.linear(features, head.mean).requires_grad_(), variance.requires_grad_()
    with torch.enable_grad():
        bound = BOUNDS[head.bound](mean, variance, target)
        by_mean, by_variance = torch.autograd.grad(-bound.sum(), (mean, variance))
    probs = by_mean.scatter_add(1, target[:, None], torch.ones_like(by_mean[:, :1])).clamp(0, 1)
    slope = 2 * by_variance.clamp_min(0) * weight[:, None]
    return -(bound.detach().double() @ weight.double()), probs, slope, quadratic.detach()


def _grams(features: Tensor, weights: Tensor) -> Tensor:
    """Σ_t w_tk φφᵀ, one matrix for each column of the weights."""
    return torch.stack([(features * column[:, None]).mT @ features for column in weights.mT])


def _reduced(weights: Tensor, common: bool) -> Tensor:
    return weights.mean(-1, keepdim=True) if common else weights


def regularizer(head: DiscriminativeClassification) -> float:
    """What the objective adds to the mean of the bounds."""
    covariance = head.covariance
    trace, logdet = covariance.trace().sum(), covariance.logdet().sum()
    value = head.prior.kl_weight * float(head._divergence(head._deviation(), trace, logdet))
    if head.noise is not None:
        value -= float(head.noise.log_prior(head.prior))
    return value / head.num_data


def _direction(here: Pass, pairs: list[tuple[Tensor, Tensor]], pull: Tensor) -> Tensor:
    """The Newton step of the mean, (K, N), corrected by the last steps (L-BFGS).

    Pairs are of steps and changes of the gradient without the prior, whose pull is added.
    """
    vector, shares = here.gradient, []
    pairs = [(step, change + pull * step) for step, change in pairs]
    pairs = [(step, change) for step, change in pairs if _bends(step, change)]
    for step, change in reversed(pairs):
        shares.append((step * vector).sum() / (step * change).sum())
        vector = vector - shares[-1] * change
    vector = _solve(here.curvature, vector)
    for step, change in pairs:
        correction = shares.pop() - (change * vector).sum() / (step * change).sum()
        vector = vector + correction * step
    return -vector


def _bends(step: Tensor, change: Tensor) -> bool:
    return bool((step * change).sum() > 1e-10 * step.norm() * change.norm())


def _solve(curvature: Tensor, vector: Tensor) -> Tensor:
    """Curvature⁻¹ vector, with as much added to the diagonal as makes it positive definite."""
    common = curvature.shape[:2] == (1, vector.shape[-1])  # one matrix for all classes
    right = vector.mT.unsqueeze(0) if common else vector.reshape(len(curvature), -1, 1)
    largest = curvature.diagonal(dim1=-2, dim2=-1).abs().amax()
    factor, info = torch.linalg.cholesky_ex(curvature)
    extra = 1e-9
    while bool(info.any()):  # rounding: the features are far larger than the prior is narrow
        if extra > 1e3:
            raise FloatingPointError(
                "the curvature of the loss overflows: features are too large; scale them down"
            )
        factor, info = torch.linalg.cholesky_ex(curvature + extra * largest * eye_like(curvature))
        extra *= 10
    solved = torch.cholesky_solve(right, factor)
    return solved[0].mT if common else solved.reshape(vector.shape)


def _precision(head: DiscriminativeClassification) -> Tensor:
    """S_k⁻¹ in the form of `Pass.precision`."""
    covariance = copy.deepcopy(head.covariance).double()
    if covariance.axis_aligned:
        return covariance.diagonal().reciprocal()
    return torch.linalg.inv(covariance.dense()[:1]) if covariance.shared else covariance.precision()


@torch.no_grad()
def move_noise(head: DiscriminativeClassification, slope: Tensor, length: float) -> None:
    """Move log σ a part of the way to its optimum, for slopes c of T · loss by σ_k²/2, (K,)."""
    if head.noise is None:
        return
    prior = head.prior
    # least ½(cσ² + a log σ² + m/σ²), a convex function of log σ
    exponent = inverse_wishart_exponent(prior.noise_dof, head.num_outputs)
    root = (exponent**2 + 4 * slope * prior.noise_scale).sqrt()
    variance = 2 * prior.noise_scale / (exponent + root).clamp_min(1e-30)
    parameter = head.noise.negative_log_stddev
    parameter.lerp_(-0.5 * variance.log().to(parameter.dtype), length)


@torch.no_grad()
def _move(
    head: DiscriminativeClassification,
    here: Pass,
    step: Tensor,
    precision: Tensor | None,
    length: float,
) -> Tensor | None:
    """Take a part of the step: the mean along its direction, Λ towards Λ*, log σ to its optimum.

    Returns:
        The new Λ, whose projection is the new S.
    """
    head.mean.add_((length * step).to(head.mean.dtype))
    move_noise(head, here.noise_slope, length)
    if precision is None:
        return None
    share = length * here.confidence.reshape(-1, *[1] * (precision.ndim - 1))
    precision = torch.lerp(precision, here.precision, share.expand_as(precision))
    covariance = copy.deepcopy(head.covariance).double()
    project = covariance.project_diagonal if precision.ndim == 2 else covariance.project
    try:
        project(precision)
    except RuntimeError:  # a factorisation failed: the slow way, from where S is
        Covariance.project(covariance, precision)
    head.covariance.load_state_dict(covariance.state_dict())
    return precision
