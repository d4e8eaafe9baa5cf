"""Fits of a discriminative head on features in memory: Newton steps of the mean, then of S_k.

Given S_k, the variances of all logits are known numbers, and a step of the mean by conjugate
gradients needs no matrix but its preconditioner. Given the mean, S_k follows from the slopes of the
bound. Both steps take a few products of the features with matrices; the second at most one matrix
of N × N at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.bounds import BOUNDS
from ..functional.conjugate import weighted_gram
from ._newton import Examples, check_initial, move_noise, regularizer

if TYPE_CHECKING:
    from .discriminative import DiscriminativeClassification

MAX_MEAN_STEPS = 4  # between two steps of S_k
MAX_PRODUCTS = 40  # with the Hessian, in a step of the mean
FORCING = 1e-2  # squared residual at which a step of the mean is good enough
MIN_SHARE = 1e-3  # of a step of S_k


class Slopes(NamedTuple):
    """The bound of all examples: its sum, and its slopes by logits and by half their variances."""

    total: Tensor  # −Σ bound, ()
    probs: Tensor  # p, (T, K)
    slope: Tensor  # c, weighted, (T, K)


class Fit:
    """A head, its data in memory, and what is known of the logits at the present parameters."""

    def __init__(self, head: DiscriminativeClassification, data: Examples) -> None:
        like = head.mean
        self.head = head
        self.inputs = head._inputs(data.features.to(like.device, like.dtype))
        self.target = data.target.to(like.device)
        self.weight = data.weight.to(like.device, like.dtype)
        self.scale = head.num_data / len(self.target)
        self.mean = F.linear(self.inputs, head.mean)  # of the logits, (T, K)
        self.quadratic = head.covariance.quadratic(self.inputs)
        chosen = torch.full_like(self.weight, 1 / head.num_outputs) * self.weight
        self.gram = self.scale * weighted_gram(self.inputs, chosen)  # of the preconditioner

    def slopes(self, mean: Tensor, quadratic: Tensor) -> Slopes:
        """The bound and its slopes, for means and variances of the logits without label noise."""
        head, target = self.head, self.target[:, None]
        variance = quadratic if head.noise is None else quadratic + head.noise.variance()
        mean, variance = mean.detach().requires_grad_(), variance.detach().requires_grad_()
        with torch.enable_grad():
            bound = BOUNDS[head.bound](mean, variance, self.target)
            by_mean, by_variance = torch.autograd.grad(-bound.sum(), (mean, variance))
        probs = by_mean.scatter_add(1, target, torch.ones_like(by_mean[:, :1])).clamp(0, 1)
        slope = 2 * by_variance.clamp_min(0) * self.weight[:, None]
        return Slopes(-(bound.detach().double() @ self.weight.double()), probs, slope)

    def loss(self, total: Tensor) -> float:
        """−ELBO/T."""
        return float(total) / len(self.target) + regularizer(self.head)

    # --------------------------------------------------------------------------- the mean

    def improve_mean(self, variance: Tensor, tolerance: float) -> None:
        """Newton steps for the mean, given S_k and the prior's variances (N,)."""
        head = self.head
        pull = head.prior.kl_weight / variance
        factor = torch.linalg.cholesky(self.gram + pull.diag_embed()).to(head.mean.dtype)
        pull = pull.to(head.mean.dtype)
        deviation = head._deviation().clone()
        here = self.slopes(self.mean, self.quadratic)
        for _ in range(MAX_MEAN_STEPS):
            weighted = here.probs * self.weight[:, None]
            error = weighted.scatter_add(1, self.target[:, None], -self.weight[:, None])
            gradient = self.scale * error.mT @ self.inputs + pull * deviation
            step = self._solve(here.probs, -gradient, pull, factor)
            logits = F.linear(self.inputs, step)
            slope = float((gradient.double() * step.double()).sum())
            linear = float((pull * deviation).double().mul(step).sum())
            square = float((pull * step).double().mul(step).sum())
            length, gain = 2.0, 0.0
            while not gain <= 1e-4 * length * slope and length > 1e-4:
                length /= 2
                there = self.slopes(self.mean + length * logits, self.quadratic)
                gain = float(self.scale * (there.total - here.total))
                gain += length * linear + 0.5 * length**2 * square
            if not gain < 0:
                return
            head.mean.add_(length * step)
            deviation += length * step
            self.mean, here = self.mean + length * logits, there
            if -gain < tolerance * head.num_data:
                return

    def _solve(self, probs: Tensor, right: Tensor, pull: Tensor, factor: Tensor) -> Tensor:
        """Conjugate gradients for the Newton step of the mean, (K, N)."""
        weight = self.scale * self.weight[:, None]

        def product(vector: Tensor) -> Tensor:
            logits = probs * F.linear(self.inputs, vector)
            logits = weight * (logits - probs * logits.sum(-1, keepdim=True))
            return logits.mT @ self.inputs + pull * vector

        def precondition(vector: Tensor) -> Tensor:
            return torch.cholesky_solve(vector.mT, factor).mT

        solution, residual = torch.zeros_like(right), right
        direction = preconditioned = precondition(residual)
        energy = first = (residual * preconditioned).sum()
        for _ in range(MAX_PRODUCTS):
            if not bool(energy > FORCING * first):
                break
            curved = product(direction)
            length = energy / (direction * curved).sum()
            solution = solution + length * direction
            residual = residual - length * curved
            preconditioned = precondition(residual)
            before, energy = energy, (residual * preconditioned).sum()
            direction = preconditioned + energy / before * direction
        return solution

    # ----------------------------------------------------------------------------- S_k

    def confidence(self, here: Slopes) -> Tensor:
        """How far to go to the stationary S_k, (1, K): how much that answers to S_k."""
        quadratic = self.quadratic.double()
        bend = (here.slope * (1 - here.probs) * quadratic.square()).sum(0)
        share = 1 / (1 + 0.5 * bend / (here.slope * quadratic).sum(0).clamp_min(1e-30))
        share = share.amin().expand_as(share) if self.head.covariance.shared else share
        return share.to(here.slope.dtype)

    def move_covariance(self, slope: Tensor, variance: Tensor) -> None:
        """Set S_k to what given slopes of the bound ask for, and the variances of the logits."""
        head = self.head
        weights = slope * (self.scale / head.prior.kl_weight)
        head.covariance.project_examples(self.inputs, weights, variance.reciprocal())
        self.quadratic = head.covariance.quadratic(self.inputs)


@torch.no_grad()
def alternate(
    head: DiscriminativeClassification,
    data: Examples,
    max_passes: int,
    tolerance: float,
    report: Callable[[float], None],
) -> list[float]:
    """Alternate steps of the mean and of S_k, both at once as far as the loss falls.

    Args:
        head: of at least single precision.
        data: of the fit, whose features fit in memory twice.
        max_passes: maximum number of such steps.
        tolerance: stops when the loss falls by less.
        report: called with the loss after each step.

    Returns:
        The loss after each step, the first one at the initial parameters.
    """
    fit = Fit(head, data)
    here = fit.slopes(fit.mean, fit.quadratic)
    losses = [fit.loss(here.total)]
    check_initial(losses[0])
    report(losses[0])
    # S_k as it is initially is no guide: begin with what the trained weights alone say of it
    slope = fit.slopes(fit.mean, torch.zeros_like(fit.quadratic)).slope
    share, variance = torch.ones_like(slope[:1]), head.prior_variance.double()
    used: Tensor | None = None
    gained = 0.1  # by the last step; the mean need not be much better than that
    while len(losses) < max_passes:
        before = copy.deepcopy(head.state_dict()), fit.mean, fit.quadratic
        best = head.prior_variance.double()
        # beyond the best s for mean and S_k as they are, to where all three go
        variance = head.anticipated_variance(variance) if head.learns_prior else best
        length, improved = 1.0, False
        while length > MIN_SHARE and len(losses) < max_passes:
            mixed = slope if used is None else torch.lerp(used, slope, length * share)
            fit.move_covariance(mixed, variance)
            move_noise(head, fit.scale * slope.double().sum(0), length)
            fit.improve_mean(variance, max(0.01 * gained, 0.1 * tolerance))
            there = fit.slopes(fit.mean, fit.quadratic)
            loss = fit.loss(there.total)
            improved = loss <= losses[-1]
            losses.append(loss if improved else losses[-1])
            report(losses[-1])
            if improved:
                break
            head.load_state_dict(before[0])
            fit.mean, fit.quadratic = before[1:]
            if torch.equal(variance, best):
                length /= 2
            variance = best
            if used is None:
                used, slope = slope, here.slope
        if not improved or losses[-2] - losses[-1] < tolerance:
            break
        used, slope, share = mixed, there.slope, fit.confidence(there)
        gained = min(gained, losses[-2] - losses[-1])
        here = there
    return losses
