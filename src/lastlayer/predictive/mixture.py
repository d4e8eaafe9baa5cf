"""Predictives of variational features: equally likely components, one per draw of the features.

The components of a mixture are an ordinary predictive with one more leading dimension, the last,
(*batch, S): a mixture indexes, moves and travels as its components do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily

from .._checks import check_count, check_target
from ._base import Predictive, as_shape
from .classes import DiscriminativePredictive, GenerativePredictive, _Classes
from .gaussian import GaussianPredictive, MultivariateGaussianPredictive

NEWTON_STEPS = 12  # that few need more of, if modes are far apart


def mix(components: Predictive) -> GaussianMixturePredictive | ClassMixturePredictive:
    """The equal mixture over the last batch dimension of a predictive.

    Args:
        components: a predictive of batch shape (*batch, S), S components for each example.
    """
    if not components.batch_shape or components.batch_shape[-1] == 0:
        raise ValueError(
            "components must have batch shape (*batch, S) with at least one component, got "
            f"{tuple(components.batch_shape)}"
        )
    if isinstance(components, GaussianPredictive | MultivariateGaussianPredictive):
        return GaussianMixturePredictive(components)
    if isinstance(components, DiscriminativePredictive | GenerativePredictive):
        return ClassMixturePredictive(components)
    raise TypeError(
        f"there are no mixtures of {type(components).__name__}; mix Gaussian, discriminative or "
        "generative predictives"
    )


@dataclass(frozen=True, eq=False)
class GaussianMixturePredictive(Predictive):
    """Targets from one of S Gaussians, each with probability 1/S, the same for all outputs.

    Attributes:
        components: of batch shape (*batch, S).
    """

    components: GaussianPredictive | MultivariateGaussianPredictive

    @property
    def batch_shape(self) -> torch.Size:
        """The leading dimensions, without that of the components."""
        return self.components.batch_shape[:-1]

    # ------------------------------------------------------------------------------ moments

    @property
    def mean(self) -> Tensor:
        """Mean of each target, (*batch, K)."""
        return self.components.mean.mean(-2)

    @property
    def noise_variance(self) -> Tensor:
        """Variance due to noise, (*batch, K)."""
        return self.components.noise_variance.mean(-2)

    @property
    def epistemic_variance(self) -> Tensor:
        """Variance due to the weights: the components' own and that of their means, (*batch, K)."""
        spread = self.components.mean.var(-2, correction=0)
        return self.components.epistemic_variance.mean(-2) + spread

    @property
    def variance(self) -> Tensor:
        """Variance of each target, weights and noise together, (*batch, K)."""
        return self.epistemic_variance + self.noise_variance

    @property
    def stddev(self) -> Tensor:
        """Standard deviation of each target, (*batch, K)."""
        return self.variance.sqrt()

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

    # ------------------------------------------------------------------------ probabilities

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-density of the targets, joint over outputs, (*batch,)."""
        mean = self.components.mean  # (*batch, S, K)
        target = check_target(target, self.batch_shape, mean.shape[-1])
        return _log_mean_exp(self.components.log_prob(target.unsqueeze(-2).expand_as(mean)))

    def cdf(self, value: Tensor) -> Tensor:
        """Probability of each target to lie below a value, (*batch, K)."""
        mean = self.components.mean
        value = check_target(value, self.batch_shape, mean.shape[-1])
        return _mass_below(value, mean, self.components.stddev)

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Lower and upper end of the central interval of each target, (*batch, K) each."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level!r}; 0.9 is 90 percent")
        mean, stddev = self.components.mean, self.components.stddev
        # the upper end as the lower one of −y: probabilities near one have no digits left
        lower, upper = _quantile(torch.stack([mean, -mean]), stddev, (1 - level) / 2)
        return lower, -upper

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
            check_count("num_samples", num_samples)
            draws = self.sample((num_samples,), generator)
            return -type(self)(self._expanded((num_samples,))).log_prob(draws).mean(0)
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
        return alone.mean(-1) - _log_mean_exp(overlap).mean(-1)

    def mutual_information(
        self, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """What observing the target would tell about all weights, features' too, (*batch,).

        In nats: `entropy`, and so a lower bound unless samples are asked, less that of the noise.
        """
        noise = self.components.entropy() - self.components.mutual_information()
        return self.entropy(num_samples, generator) - noise.mean(-1)

    def sample(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws of the targets, (*sample_shape, *batch, K)."""
        shape = (*as_shape(sample_shape), *self.batch_shape)
        mean = self.components.mean
        chosen = torch.randint(mean.shape[-2], shape, generator=generator, device=mean.device)

        def take(tensor: Tensor) -> Tensor:
            index = chosen.reshape(*shape, *[1] * (tensor.ndim - len(shape)))
            return tensor.take_along_dim(index, len(shape)).squeeze(len(shape))

        expanded = self._expanded(as_shape(sample_shape))
        return type(expanded)(*map(take, expanded._tensors())).sample((), generator)

    def _expanded(
        self, sample_shape: tuple[int, ...]
    ) -> GaussianPredictive | MultivariateGaussianPredictive:
        """The components, as often as there are samples; a view."""
        tensors = self.components._tensors()
        return type(self.components)(*(t.expand(*sample_shape, *t.shape) for t in tensors))

    def distribution(self) -> Distribution:
        """The mixture distribution of the outputs."""
        weights = Categorical(logits=torch.zeros_like(self.components.mean[..., 0]))
        return MixtureSameFamily(weights, self.components.distribution())


@dataclass(frozen=True, eq=False)
class ClassMixturePredictive(_Classes):
    """The mean of S class probabilities: features are averaged over after the softmax.

    Attributes:
        components: of batch shape (*batch, S).
    """

    components: DiscriminativePredictive | GenerativePredictive

    @property
    def batch_shape(self) -> torch.Size:
        """The leading dimensions, without that of the components."""
        return self.components.batch_shape[:-1]

    def probs(self) -> Tensor:
        """Class probabilities, (*batch, K)."""
        return self.components.probs().mean(-2)

    def log_probs(self) -> Tensor:
        """Logarithms of the class probabilities, (*batch, K)."""
        return _log_mean_exp(self.components.log_probs(), -2)

    def mutual_information(self) -> Tensor:
        """What observing the label would tell about all weights, features' too, (*batch,).

        H(E p(y|W, θ)) − E H(p(y|W, θ)) in nats; what is approximate about it is what is about
        the `mutual_information` of the components.
        """
        given_weights = self.components.entropy() - self.components.mutual_information()
        return (self.entropy() - given_weights.mean(-1)).clamp(min=0)

    def log_density(self) -> Tensor:
        """Log-density of the features, log E p(φ); of generative components, (*batch,)."""
        if not isinstance(self.components, GenerativePredictive):
            raise TypeError(
                f"{type(self.components).__name__} has no density of the features; "
                "use a generative head"
            )
        return _log_mean_exp(self.components.log_density())

    @property
    def epistemic_variance(self) -> Tensor:
        """Variance of the logits due to all weights, of discriminative components, (*batch, K)."""
        return cast(Any, self.before_softmax()).epistemic_variance

    def before_softmax(self) -> DiscriminativePredictive | GenerativePredictive:
        """Average over features before the softmax instead (paper, appendix B).

        Of generative components the joint densities are averaged, and draws that find an input
        likelier count for more. Of discriminative ones the logits are: a Gaussian with their mean
        and variance, in which the spread of the components' means counts as epistemic. A
        constant added to all logits of a component changes no probability and is no spread.
        """
        components = self.components
        if isinstance(components, GenerativePredictive):
            return GenerativePredictive(
                _log_mean_exp(components.log_joint, -2), components.expected_log_joint.mean(-2)
            )
        mean = components.logit_mean
        spread = (mean - mean.mean(-1, keepdim=True)).var(-2, correction=0)
        return DiscriminativePredictive(
            mean.mean(-2),
            components.epistemic_variance.mean(-2) + spread,
            components.noise_variance.mean(-2),
        )


def _log_mean_exp(tensor: Tensor, dim: int = -1) -> Tensor:
    return tensor.logsumexp(dim) - math.log(tensor.shape[dim])


def _mass_below(value: Tensor, mean: Tensor, stddev: Tensor) -> Tensor:
    """Probability below a value, (*batch, K), of a mixture of Gaussians, (*batch, S, K)."""
    scores = (value.unsqueeze(-2) - mean) / stddev
    return 0.5 * torch.erfc(-(0.5**0.5) * scores).mean(-2)  # ndtr has no digits far below


def _quantile(mean: Tensor, stddev: Tensor, mass: float) -> Tensor:
    """The value with so much probability below, (*batch, K)."""
    if not _has_values(mean):
        return _by_bisection(mean, stddev, mass)
    value, found = _by_newton(mean, stddev, mass)
    if not found.all():
        rest = ~found  # of these (S, number)
        value[rest] = _by_bisection(mean.mT[rest].mT, stddev.expand_as(mean).mT[rest].mT, mass)
    return value


def _by_newton(mean: Tensor, stddev: Tensor, mass: float) -> tuple[Tensor, Tensor]:
    """The quantile in a few steps on the logarithm of the mass, and where these were enough."""
    lower, upper = _ends(mean, stddev, mass)
    # a step so small leaves an error in proportion to its square
    small = torch.finfo(mean.dtype).eps ** 0.5 * stddev.amin(-2)
    value = lower + 0.5 * (upper - lower)
    found = torch.zeros_like(value, dtype=torch.bool)
    for _ in range(NEWTON_STEPS):
        scores = (value.unsqueeze(-2) - mean) / stddev
        density = ((-0.5 * scores.square()).exp() / stddev).mean(-2) / math.sqrt(2 * math.pi)
        below = _mass_below(value, mean, stddev)
        step = (math.log(mass) - below.log()) * below / density
        value, last = (value + step).clamp(lower, upper), value
        found = (value - last).abs() <= small
        if found.all():
            break
    return value, found


def _by_bisection(mean: Tensor, stddev: Tensor, mass: float) -> Tensor:
    """The quantile for sure, in as many steps as there are digits."""
    lower, upper = _ends(mean, stddev, mass)
    for _ in range(round(1 - math.log2(torch.finfo(mean.dtype).eps))):
        middle = lower + 0.5 * (upper - lower)
        below = _mass_below(middle, mean, stddev) < mass
        lower, upper = middle.where(below, lower), upper.where(below, middle)
    return lower + 0.5 * (upper - lower)


def _ends(mean: Tensor, stddev: Tensor, mass: float) -> tuple[Tensor, Tensor]:
    """What the quantile lies between: the lowest and the highest of the components."""
    score = torch.special.ndtri(torch.tensor(mass, dtype=torch.float64, device="cpu"))
    ends = mean + score * stddev  # a number: does not change the dtype
    return ends.amin(-2), ends.amax(-2)


def _has_values(tensor: Tensor) -> bool:
    """Whether what to do may depend on the values: not in a graph, nor under `vmap`."""
    if torch.compiler.is_compiling():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
