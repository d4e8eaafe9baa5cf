"""The solver of classification with noisy labels on fixed features: expectation–maximisation."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import check_count, check_positive
from .._sharding import load_whole, whole
from ..functional.bounds import BOUNDS
from ..functional.wrong_labels import softplus_bound, tilt_of_log_odds, wrong_label_bound
from ._newton import Examples
from ._solver import examples_of
from ._weights import GaussianWeights
from .discriminative import DiscriminativeClassification

if TYPE_CHECKING:
    from .noisy_labels import NoisyLabelClassification

STEPS = 2  # passes over the data for each step of the classes, the first to evaluate
SUSPICION = 0.0  # log-odds from which a new head begins, half of all labels random
MIN_LENGTH = 1e-3  # of a step of the log-odds


class Terms(NamedTuple):
    """What the bound of each example depends on, (T,) each, in double precision."""

    log_likelihood: Tensor
    log_odds_mean: Tensor
    log_odds_variance: Tensor


@torch.no_grad()
def solve(
    head: NoisyLabelClassification,
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
    fit = _Fit(head, examples_of(head, features, target, weight), tolerance, max_memory_bytes)
    if not head.log_odds.fresh:
        fit.improve(max_passes, report)
    else:
        fit.move_classes(torch.ones_like(fit.weight), max_passes)
        trusting, loss = copy.deepcopy(fit.head.state_dict()), fit.loss(fit.terms())
        fit.head.log_odds.mean[:, -1] = SUSPICION
        if fit.improve(max_passes, report) > loss:
            fit.head.load_state_dict(trusting)
            fit.improve(max_passes, report)
    fit.head.initial_digest.zero_()
    fit.head.log_odds.initial_digest.zero_()
    load_whole(head, fit.head.state_dict())


class _Fit:
    """A copy of a head, of at least single precision, and the data."""

    def __init__(
        self,
        head: NoisyLabelClassification,
        data: Examples,
        tolerance: float,
        max_memory_bytes: int,
    ) -> None:
        self.head = whole(head).requires_grad_(False)
        if self.head.mean.dtype in (torch.float16, torch.bfloat16):
            self.head.float()  # steps below the resolution of half precision count
        self.data, self.tolerance, self.max_memory_bytes = data, tolerance, max_memory_bytes
        self.weight = data.weight.to(self.head.mean.device).double()
        self.trusting = _trusting(self.head)
        # how much a unit of the data's sums counts beside the divergence
        self.scale = head.num_data / len(data.target) / head.prior.kl_weight

    def improve(self, max_passes: int, report: Callable[[float], None]) -> float:
        """Alternate from where the head is, and return the loss."""
        here = self.terms()
        loss = self.loss(here)
        report(loss)
        for _ in range(max_passes - 1):
            before = copy.deepcopy(self.head.state_dict())
            random = self.random(here)
            self.move_classes(1 - random, STEPS)
            self.move_log_odds(random, here)
            here = self.terms()
            improved = loss - self.loss(here)
            loss -= max(improved, 0.0)
            report(loss)
            if not improved >= 0:  # by rounding
                self.head.load_state_dict(before)
            if not improved >= self.tolerance:
                break
        return loss

    def terms(self) -> Terms:
        """The bound on the log-likelihood of right labels, and the moments of the log-odds."""
        head, parts = self.head, []
        for features, target, _ in self.data.chunks(head):
            mean, variance = F.linear(features, head.mean), head.covariance.quadratic(features)
            bound = BOUNDS[head.bound](mean, variance, target)
            parts.append((bound, *self._log_odds(features)))
        return Terms(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def _log_odds(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the log-odds of prepared features, (T,) each."""
        inputs, layer = self.head.log_odds.inputs(features, self.head), self.head.log_odds
        mean, variance = F.linear(inputs, layer.mean), layer.covariance.quadratic(inputs)
        return mean.double().squeeze(-1), variance.double().squeeze(-1)

    def loss(self, here: Terms) -> float:
        """−ELBO/T."""
        head = self.head
        bounds = wrong_label_bound(*here, head.num_outputs)
        kl = sum(float(_divergence(layer)) for layer in (head, head.log_odds))
        data = float(bounds @ self.weight) / len(self.weight)
        return head.prior.kl_weight * kl / head.num_data - data

    def random(self, here: Terms) -> Tensor:
        """The probability that each label was drawn at random, given its class, (T,)."""
        odds = here.log_odds_mean - math.log(self.head.num_outputs) - here.log_likelihood
        return odds.sigmoid()

    def move_classes(self, right: Tensor, passes: int) -> None:
        """Steps of the head that takes every label for right, with examples that count less."""
        self.trusting.fit_features(
            self.data.features,
            self.data.target,
            (self.weight * right).to(self.data.weight),
            max_passes=passes,
            tolerance=self.tolerance,
            max_memory_bytes=self.max_memory_bytes,
        )

    def move_log_odds(self, random: Tensor, here: Terms) -> None:
        """A Newton step of the mean, and S' with the same curvature, as far as the bound rises."""
        layer = self.head.log_odds
        variance = layer.prior_variance.double()
        tilt = tilt_of_log_odds(here.log_odds_mean, here.log_odds_variance)
        weight = self.scale * self.weight
        gradient = -layer._deviation().double().squeeze(0) / variance
        curvature = variance.reciprocal().diag()
        begun = 0
        for features, _, _ in self.data.chunks(self.head):
            inputs = self.head.log_odds.inputs(features, self.head).double()
            rows = slice(begun, begun := begun + len(inputs))
            gradient += inputs.mT @ (weight * (random - tilt))[rows]
            curvature += inputs.mT @ (inputs * (weight * tilt * (1 - tilt))[rows, None])
        direction = torch.linalg.solve(curvature, gradient)
        before, precision = copy.deepcopy(layer.state_dict()), layer.covariance.precision().double()
        present, length = self._value(random), 1.0
        while length > MIN_LENGTH:
            layer.mean.add_((length * direction).to(layer.mean.dtype))
            covariance = copy.deepcopy(layer.covariance).double()
            covariance.project(torch.lerp(precision, curvature.expand_as(precision), length))
            layer.covariance.load_state_dict(covariance.state_dict())
            if self._value(random) >= present:
                return
            layer.load_state_dict(before)
            length /= 2

    def _value(self, random: Tensor) -> float:
        """What of the bound depends on the log-odds, given how likely each label is random."""
        moments = [self._log_odds(features) for features, _, _ in self.data.chunks(self.head)]
        mean, variance = (torch.cat(tensors) for tensors in zip(*moments, strict=True))
        data = self.weight @ (random * mean - softplus_bound(mean, variance))
        return float(self.scale * data - _divergence(self.head.log_odds))


def _trusting(head: NoisyLabelClassification) -> DiscriminativeClassification:
    """The head that takes every label for right, with the same weights: they change together."""
    with torch.random.fork_rng(devices=[]):  # of initial weights, which are not used
        trusting = DiscriminativeClassification(
            head.num_features,
            head.num_outputs,
            num_data=head.num_data,
            covariance=lambda *sizes: copy.deepcopy(head.covariance),
            bound=head.bound,
            noise="none",
            prior=head.prior,
            bias=head.bias,
            device=head.mean.device,
            dtype=head.mean.dtype,
        ).requires_grad_(False)
    trusting.prior_mean = head.prior_mean
    trusting.mean, trusting.covariance = head.mean, head.covariance
    return trusting


def _divergence(layer: GaussianWeights) -> Tensor:
    covariance = layer.covariance
    return layer._divergence(
        layer._deviation(), covariance.trace().sum(), covariance.logdet().sum()
    )
