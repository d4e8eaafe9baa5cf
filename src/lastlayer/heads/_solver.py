"""The solver of a discriminative head on fixed features: few passes over the data."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .._checks import (
    check_count,
    check_labels,
    check_positive,
    check_range,
    check_weight,
    check_weights,
)
from .._processes import is_sharing, num_rows, summed
from .._sharding import load_whole, whole
from ._alternating import alternate
from ._newton import NUM_PAIRS, Examples, evaluate, newton

if TYPE_CHECKING:
    from ._softmax import SoftmaxHead
    from .discriminative import DiscriminativeClassification

MAX_JOINT_WEIGHTS = 1024  # weights of all classes up to which their joint Hessian is formed
PATIENCE = 8  # passes in which L-BFGS must gain the tolerance: a line search takes several


def solve(
    head: DiscriminativeClassification,
    features: Tensor,
    target: Tensor,
    weight: Tensor | None,
    max_passes: int,
    tolerance: float,
    max_memory_bytes: int,
    report: Callable[[float], None],
) -> None:
    """Minimise the loss of a head on fixed features; see `fit_features` for the arguments."""
    check_count("max_passes", max_passes)
    check_positive("tolerance", tolerance)
    data = examples_of(head, features, target, weight)
    fit = whole(head).requires_grad_(False)
    if fit.mean.dtype in (torch.float16, torch.bfloat16):
        fit.float()  # steps below the resolution of half precision count
    joint = head.num_outputs * head.width <= MAX_JOINT_WEIGHTS
    # features, their products with K weights, and a few matrices
    needed = 2 * data.features.nbytes + 64 * data.target.numel() * head.num_outputs
    needed += 32 * head.width**2
    if not joint and needed <= max_memory_bytes and not is_sharing():  # which sums every pass
        initial = copy.deepcopy(fit.state_dict())
        try:
            alternate(fit, data, max_passes, tolerance, report)
            load_whole(head, fit.state_dict())
            return
        except RuntimeError:  # a factorisation failed: features are too large for the prior
            fit.load_state_dict(initial)
    blocks = 8 * head.num_outputs * head.width**2
    separate = not (fit.covariance.axis_aligned or fit.covariance.shared)
    if separate and 3 * blocks > max_memory_bytes:
        _descend(fit, data, max_passes, tolerance, report)
    else:
        kind = "joint" if joint else "blocks" if 2 * blocks <= max_memory_bytes else "common"
        newton(fit, data, kind, False, max_passes, tolerance, report)
    load_whole(head, fit.state_dict())


def examples_of(
    head: SoftmaxHead, features: Tensor, target: Tensor, weight: Tensor | None
) -> Examples:
    """Checked features, labels and weights, one row per example."""
    batch_shape = features.shape[:-1]
    if features.numel() == 0 or features.shape[-1] != head.num_features:
        raise ValueError(
            f"features must be (*batch, {head.num_features}) with at least one example, "
            f"got shape {tuple(features.shape)}"
        )
    labels = check_labels(target, batch_shape).flatten()
    weights = torch.ones(labels.shape, device=labels.device)
    if weight is not None:
        weights = check_weight(weight, batch_shape, None).flatten()
        check_weights(weights)
        labels = labels.where(weights != 0, 0)  # ignored, whatever it is
    check_range(labels, head.num_outputs)
    return Examples(features.reshape(-1, head.num_features), labels, weights)


class _FinishedError(Exception):
    """Leaves L-BFGS in the midst of a line search."""


def _descend(
    head: DiscriminativeClassification,
    data: Examples,
    max_passes: int,
    tolerance: float,
    report: Callable[[float], None],
) -> None:
    """Newton steps for mean and noise, then L-BFGS on all parameters and a few copies of them.

    There the mean moves in coordinates in which the curvature common to all classes is one.
    """
    losses = newton(head, data, "common", True, max_passes, tolerance, report)
    curvature = evaluate(head, data, "common", True).curvature[0]
    root = torch.linalg.inv(torch.linalg.cholesky(curvature)).to(head.mean.dtype)
    initial, moved = head.mean.detach().clone(), torch.zeros_like(head.mean, requires_grad=True)
    head.requires_grad_(True)
    others = [parameter for parameter in head.parameters() if parameter is not head.mean]
    num_before = len(losses) + PATIENCE
    best, state = losses[-1], copy.deepcopy(head.state_dict())

    def closure() -> float:
        nonlocal best, state
        stalled = len(losses) > num_before and losses[-PATIENCE - 1] - best < tolerance
        if stalled or len(losses) >= max_passes:
            raise _FinishedError
        with torch.no_grad():
            head.mean.copy_(initial + moved @ root)
        head.zero_grad()
        loss = _backward(head, data)
        assert head.mean.grad is not None
        moved.grad = head.mean.grad @ root.mT
        if loss < best:
            best, state = loss, copy.deepcopy(head.state_dict())
        losses.append(best)
        report(best)
        return loss * head.num_data

    optimizer = torch.optim.LBFGS(
        [moved, *others],
        max_iter=max_passes,
        max_eval=2 * max_passes,  # the closure counts
        tolerance_grad=0.0,
        tolerance_change=0.0,
        history_size=NUM_PAIRS,
        line_search_fn="strong_wolfe",
    )
    with contextlib.suppress(_FinishedError):
        optimizer.step(closure)
    head.load_state_dict(state)
    head.requires_grad_(False)


def _backward(head: DiscriminativeClassification, data: Examples) -> float:
    """The loss, its gradient times T left in the parameters."""
    total, count = torch.zeros((), dtype=torch.float64), num_rows(len(data.target))
    for features, target, weight in data.chunks(head):
        bounds, kl, log_prior = head.objective(features, target, weight)
        share = len(target) / count
        regularizer = (head.prior.kl_weight * kl - log_prior) / head.num_data
        loss = share * regularizer - bounds.sum() / count
        (loss * head.num_data).backward()
        total += float(loss.detach())
    for parameter in head.parameters():
        if parameter.grad is not None:
            parameter.grad = summed(parameter.grad)
    return float(summed(total))
