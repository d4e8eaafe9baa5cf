"""The solver of regression with heavy tails on fixed features: reweighted exact fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import check_count, check_positive, check_target
from ..functional import conjugate
from ..functional.student_t import (
    dof_log_prior,
    expected_student_t_log_density,
    expected_tail_precision,
)

if TYPE_CHECKING:
    from .student_t import StudentTRegression

CHUNK = 2**22  # features converted to double precision at a time
LOG_RANGE = (-7.0, 7.0)  # in which the logarithm of η above its least is searched
GOLDEN = 0.5 * (5**0.5 - 1)
NUM_SECTIONS = 36  # of that range: to 4e-7


@torch.no_grad()
def solve(
    head: StudentTRegression,
    features: Tensor,
    target: Tensor,
    weight: Tensor | None,
    max_passes: int,
    tolerance: float,
    report: Callable[[float], None],
) -> None:
    """Minimise the loss of a head on fixed features; see `fit_features` for the arguments."""
    check_count("max_passes", max_passes)
    check_positive("tolerance", tolerance)
    batch_shape, num_outputs = features.shape[:-1], head.num_outputs
    if features.numel() == 0:
        raise ValueError(
            f"features must hold at least one example, got shape {tuple(features.shape)}"
        )
    fit = head._in_double().to(features.device)
    target = check_target(target, batch_shape, num_outputs)
    weights = torch.ones(target.shape, dtype=torch.float64, device=target.device)
    if weight is not None:
        weights = fit._check_weight(weight, batch_shape).expand_as(target)
    features = features.reshape(-1, head.num_features)
    target, weights = target.reshape(-1, num_outputs), weights.reshape(-1, num_outputs)
    fit.num_data = len(features)
    if head.fresh:  # begin without tails
        _refit(fit, features, target, weights, weights)
    fit._settle_variance()
    before = float("inf")
    for _ in range(max_passes):
        squares = _squares(fit, features, target.where(weights != 0, 0.0))
        _set_tails(fit, squares, weights)
        loss = _loss(fit, squares, weights)
        report(loss)
        if before - loss < tolerance:
            break
        before = loss
        tails = fit.noise_dof()
        assert tails is not None
        _refit(fit, features, target, weights * expected_tail_precision(squares, tails), weights)
    fit.num_data = head.num_data
    head._take(fit)


def _refit(
    fit: StudentTRegression, features: Tensor, target: Tensor, reweighted: Tensor, weights: Tensor
) -> None:
    """Set weights and noise to their exact posterior for examples that count as given."""
    reference = fit._prior_mean() if fit.fresh else fit.mean.clone()
    data = fit._gather(features.double(), target, reweighted, reference)
    fit._improve_variance()
    counts = weights.sum(0)
    fit._set_posterior(*fit._information(data)[:3], counts)
    fit._set_noise(conjugate.residual_scatter(data, fit.mean).diagonal(), counts)
    fit.initial_digest.zero_()


def _squares(fit: StudentTRegression, features: Tensor, target: Tensor) -> Tensor:
    """δ, the expected squared errors in units of the noise, (T, K)."""
    rows, parts = max(1, CHUNK // features.shape[-1]), []
    for part, known in zip(features.split(rows), target.split(rows), strict=True):
        inputs = fit._inputs(part.double())
        white = fit.noise.whiten(known.double() - F.linear(inputs, fit.mean))
        parts.append(white.square() + fit.covariance.quadratic(inputs))
    return torch.cat(parts)


def _set_tails(fit: StudentTRegression, squares: Tensor, weights: Tensor) -> None:
    """Set learned degrees of freedom to where the bound is highest, by golden sections."""
    if not fit.learns_tails:
        return

    def value(log_excess: Tensor) -> Tensor:
        fit.log_excess_dof.copy_(log_excess)
        tails = fit.noise_dof()
        assert tails is not None
        terms = expected_student_t_log_density(squares, torch.zeros_like(tails), tails)
        return (weights * terms).sum(0) + dof_log_prior(tails)

    present = fit.log_excess_dof.clone()
    low, high = (torch.full_like(present, end) for end in LOG_RANGE)
    for _ in range(NUM_SECTIONS):
        step = GOLDEN * (high - low)
        left = value(high - step) > value(low + step)
        low, high = low.where(left, high - step), (low + step).where(left, high)
    found = 0.5 * (low + high)
    fit.log_excess_dof.copy_(found.where(value(found) >= value(present), present))


def _loss(fit: StudentTRegression, squares: Tensor, weights: Tensor) -> float:
    """−ELBO/T."""
    tails = fit.noise_dof()
    assert tails is not None
    terms = expected_student_t_log_density(squares, fit.noise.expected_log_precision_scale(), tails)
    trace, logdet = fit.covariance.trace().sum(), fit.covariance.logdet().sum()
    kl = fit._divergence(fit._prior_deviation(), trace, logdet) + fit.noise.divergence(fit.prior)
    log_prior = dof_log_prior(tails).sum() if fit.learns_tails else 0.0
    total = (weights * terms).sum() + log_prior - fit.prior.kl_weight * kl
    return float(-total / len(squares))
