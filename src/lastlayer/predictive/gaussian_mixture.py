"""Mixtures of Gaussians: quantiles, CRPS and entropy in closed form or nearly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..functional import gaussian_mixture_crps
from ._base import log_mean_exp
from ._quantiles import as_mass, bisect, check_level
from .regression import RegressionMixture

if TYPE_CHECKING:
    from .gaussian import GaussianPredictive, MultivariateGaussianPredictive

NEWTON_STEPS = 12  # that few need more of, if modes are far apart


@dataclass(frozen=True, eq=False, repr=False)
class GaussianMixturePredictive(RegressionMixture):
    """Targets from one of S Gaussians, each with probability 1/S, the same for all outputs.

    Attributes:
        components: of batch shape (*batch, S).
    """

    components: GaussianPredictive | MultivariateGaussianPredictive

    @property
    def noise_covariance(self) -> Tensor:
        """Covariance due to noise, (*batch, K, K)."""
        return self.components.noise_covariance.mean(-3)

    @property
    def epistemic_covariance(self) -> Tensor:
        """Covariance due to the weights, (*batch, K, K).

        Not diagonal even if the components' are: outputs share the draw of the features.
        """
        centred = self.components.mean - self.mean.unsqueeze(-2)
        spread = centred.mT @ centred / centred.shape[-2]
        return self.components.epistemic_covariance.mean(-3) + spread

    @property
    def covariance(self) -> Tensor:
        """Joint covariance of the targets of an example, (*batch, K, K)."""
        return self.epistemic_covariance + self.noise_covariance

    def cdf(self, value: Tensor) -> Tensor:
        """Probability of each target to lie below a value, (*batch, K)."""
        return _mass_below(self._target(value), self.components.mean, self.components.stddev)

    def quantile(self, mass: float | Tensor) -> Tensor:
        """Quantile of each target at a mass, (*batch, K)."""
        return _quantile(self.components.mean, self.components.stddev, as_mass(mass))

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Lower and upper end of the central interval of each target, (*batch, K) each."""
        check_level(level)
        mean, stddev = self.components.mean, self.components.stddev
        # the upper end as the lower one of −y: probabilities near one have no digits left
        lower, upper = _quantile(torch.stack([mean, -mean]), stddev, as_mass((1 - level) / 2))
        return lower, -upper

    def crps(self, target: Tensor) -> Tensor:
        """Continuous ranked probability score of each target, in its units, (*batch, K)."""
        means = self.components.mean.movedim(-2, 0)  # (S, *batch, K)
        stddevs = self.components.stddev.movedim(-2, 0)
        weights = means.new_full((len(means),), 1 / len(means))
        return gaussian_mixture_crps(weights, means, stddevs, self._target(target))

    def entropy(
        self, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Differential entropy of the targets in nats, (*batch,).

        Without samples a lower bound in closed form, from the Bhattacharyya distances between
        components (Kolchinsky & Tracey 2017): exact if all components are equal, or far apart,
        never below their mean entropy, and too low by up to 0.22 nats for each output if there
        are many, normally spread. With samples an unbiased estimate.
        """
        if num_samples is not None:
            return self._sampled_entropy(num_samples, generator)
        alone = self.components.entropy()  # (*batch, S)
        mean, epistemic, noise = self.components._tensors()
        first, second = mean.ndim - 1, mean.ndim - 2  # where to insert the other component
        pairs = (*mean.shape[:-1], *mean.shape[-2:])  # (*batch, S, S, K)
        between = type(self.components)(  # N(μ_j, 2 (C_i + C_j)), for all i and j
            mean.unsqueeze(second).expand(pairs),
            2 * (epistemic.unsqueeze(first) + epistemic.unsqueeze(second)),
            2 * (noise.unsqueeze(first) + noise.unsqueeze(second)),
        )
        overlap = between.log_prob(mean.unsqueeze(first).expand(pairs))
        overlap = overlap + 0.5 * (alone.unsqueeze(-1) + alone.unsqueeze(-2))
        # log ∫ √(p_i p_j), minus the distance, is at most zero but for rounding
        overlap = (overlap + 0.5 * mean.shape[-1] * (math.log(4) - 1)).clamp(max=0)
        return alone.mean(-1) - log_mean_exp(overlap).mean(-1)


def _mass_below(value: Tensor, mean: Tensor, stddev: Tensor) -> Tensor:
    """Probability below a value, (*batch, K), of a mixture of Gaussians, (*batch, S, K)."""
    scores = (value.unsqueeze(-2) - mean) / stddev
    return 0.5 * torch.erfc(-(0.5**0.5) * scores).mean(-2)  # ndtr has no digits far below


def _quantile(mean: Tensor, stddev: Tensor, mass: Tensor) -> Tensor:
    """Quantile of each target at a mass, (*batch, K)."""
    if not _has_values(mean):
        return _by_bisection(mean, stddev, mass)
    value, converged = _by_newton(mean, stddev, mass)
    if not converged.all():
        rest = ~converged  # of these (S, number)
        mass = mass.expand_as(value)[rest] if mass.ndim else mass
        value[rest] = _by_bisection(mean.mT[rest].mT, stddev.expand_as(mean).mT[rest].mT, mass)
    return value


def _by_newton(mean: Tensor, stddev: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """The quantile in a few steps on the logarithm of the mass, and where these were enough."""
    lower, upper = _ends(mean, stddev, mass)
    # a step so small leaves an error in proportion to its square
    small = torch.finfo(mean.dtype).eps ** 0.5 * stddev.amin(-2)
    value = lower + 0.5 * (upper - lower)
    converged = torch.zeros_like(value, dtype=torch.bool)
    for _ in range(NEWTON_STEPS):
        scores = (value.unsqueeze(-2) - mean) / stddev
        density = ((-0.5 * scores.square()).exp() / stddev).mean(-2) / math.sqrt(2 * math.pi)
        below = _mass_below(value, mean, stddev)
        step = (mass.log() - below.log()) * below / density
        value, last = (value + step).clamp(lower, upper), value
        converged = (value - last).abs() <= small
        if converged.all():
            break
    return value, converged


def _by_bisection(mean: Tensor, stddev: Tensor, mass: Tensor) -> Tensor:
    """The quantile by bisection, in as many steps as there are digits."""
    ends = _ends(mean, stddev, mass)
    return bisect(lambda value: _mass_below(value, mean, stddev), *ends, mass)


def _ends(mean: Tensor, stddev: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """What the quantile lies between: the lowest and the highest of the components."""
    score = torch.special.ndtri(mass)
    ends = mean + (score.unsqueeze(-2) if score.ndim else score) * stddev
    return ends.amin(-2), ends.amax(-2)


def _has_values(tensor: Tensor) -> bool:
    """Whether control flow may depend on values: not in a graph, nor under `vmap`."""
    if torch.compiler.is_compiling():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
