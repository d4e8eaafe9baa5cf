"""The family of regression predictives: real-valued targets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily

from .._checks import check_count, check_target
from ._base import Predictive, as_shape, log_mean_exp
from ._quantiles import as_mass, bisect, check_level, simpson, spread_masses


class RegressionPredictive(Predictive):
    """A predictive of K real-valued outputs.

    One of your own needs the three attributes, `log_prob`, `cdf`, `affine`, `sample` and
    `distribution`, and has the rest from here; `log_prob_per_output` if its outputs are
    independent, and `entropy` and `mutual_information` for the OOD scores of these names.

    Attributes:
        mean: (*batch, K).
        epistemic_variance: variance due to the weights, (*batch, K).
        noise_variance: variance due to noise, (*batch, K).
    """

    task = "regression"
    scalings: ClassVar[tuple[str, ...]] = ("VarianceScaling",)
    plain = "wrap a model of plain means by lastlayer.Plain(model, 'regression')"
    mean: Tensor
    epistemic_variance: Tensor
    noise_variance: Tensor

    @property
    def num_outputs(self) -> int:
        """The number of outputs or classes, K."""
        return self.mean.shape[-1]

    @property
    def variance(self) -> Tensor:
        """Variance of each target, weights and noise together, (*batch, K)."""
        return self.epistemic_variance + self.noise_variance

    @property
    def stddev(self) -> Tensor:
        """Standard deviation of each target, (*batch, K)."""
        return self.variance.sqrt()

    def total_epistemic_variance(self) -> Tensor:
        """Variance due to the weights, summed over outputs, (*batch,)."""
        return self.epistemic_variance.sum(-1)

    # -------------------------------------------------------------------------- probabilities

    @abstractmethod
    def log_prob(self, target: Tensor) -> Tensor:
        """Log-density of the targets, joint over outputs, (*batch,)."""

    def log_prob_per_output(self, target: Tensor) -> Tensor:
        """Log-density of each target, (*batch, K), whose sum is `log_prob`."""
        raise ValueError(
            f"log-densities per output need independent outputs, which {type(self).__name__} does "
            "not have; take log_prob, and one weight per example"
        )

    @abstractmethod
    def cdf(self, value: Tensor) -> Tensor:
        """Probability of each target to lie below a value, (*batch, K)."""

    def quantile(self, mass: float | Tensor) -> Tensor:
        """Quantile of each target at a mass, (*batch, K), by bisection of `cdf`.

        Args:
            mass: strictly between 0 and 1; a number, or of a shape that broadcasts to (*batch, K).
        """
        mass = as_mass(mass)
        odds = (mass / (1 - mass)).sqrt()
        ends = self.mean - self.stddev / odds, self.mean + self.stddev * odds  # Cantelli
        return bisect(self.cdf, *ends, mass, doublings=16)

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Lower and upper end of the central interval of each target, (*batch, K) each."""
        check_level(level)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def crps(self, target: Tensor) -> Tensor:
        r"""Continuous ranked probability score of each target, in its units, (*batch, K).

        $$\int_{-\infty}^y F(x)^2\,dx + \int_y^\infty (1 - F(x))^2\,dx$$

        by Simpson's rule between quantiles.
        """
        target = self._target(target).unsqueeze(0)
        points = self._quantiles()
        below = torch.cat([points.minimum(target), target])
        above = torch.cat([target, points.maximum(target)])
        short = simpson(lambda x: self.expand(len(x)).cdf(x).square(), below)
        long = simpson(lambda x: (1 - self.expand(len(x)).cdf(x)).square(), above)
        return short + long

    def _quantiles(self) -> Tensor:
        """Values between which the distribution function rises, ascending, (points, *batch, K)."""
        masses = spread_masses(self.mean)
        return self.expand(len(masses)).quantile(masses)

    # ------------------------------------------------------------------------ transformations

    @abstractmethod
    def affine(self, location: Tensor, scale: Tensor) -> RegressionPredictive:
        """The predictive of location + scale · y.

        Args:
            location: (K,), or (*batch, K).
            scale: above zero, as shaped.
        """

    def scale_variance(self, factor: Tensor) -> RegressionPredictive:
        """The predictive stretched about its mean: variances times c_k, (K,) or (*batch, K)."""
        stretch = factor.sqrt()
        return self.affine(self.mean * (1 - stretch), stretch)

    def standardized_squares(self, target: Tensor) -> Tensor:
        """Squared errors over variances, (*batch, K), whose mean is one if variances are right.

        Outputs whose variances are scaled together have the terms r_k (C⁻¹)_kl r_l instead,
        (*batch, K, K), with r the errors and C the covariance of the outputs.
        """
        return (self._target(target) - self.mean).square() / self.variance

    def _mixed(self) -> RegressionPredictive:
        return RegressionMixturePredictive(self)

    def _target(self, target: Tensor) -> Tensor:
        return check_target(target, self.batch_shape, self.mean.shape[-1])


class RegressionMixture(RegressionPredictive):
    """Targets from one of S predictives, each with probability 1/S, the same for all outputs.

    Attributes:
        components: of batch shape (*batch, S).
    """

    components: RegressionPredictive

    @property
    def batch_shape(self) -> torch.Size:
        """The leading dimensions, without that of the components."""
        return self.components.batch_shape[:-1]

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """Mean of each target, (*batch, K)."""
        return self.components.mean.mean(-2)

    @property
    def noise_variance(self) -> Tensor:  # type: ignore[override]
        """Variance due to noise, (*batch, K)."""
        return self.components.noise_variance.mean(-2)

    @property
    def epistemic_variance(self) -> Tensor:  # type: ignore[override]
        """Variance due to the weights: the components' own and that of their means, (*batch, K)."""
        spread = self.components.mean.var(-2, correction=0)
        return self.components.epistemic_variance.mean(-2) + spread

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-density of the targets, joint over outputs, (*batch,)."""
        return log_mean_exp(self.components.log_prob(self._repeated(target)))

    def cdf(self, value: Tensor) -> Tensor:
        """Probability of each target to lie below a value, (*batch, K)."""
        return self.components.cdf(self._repeated(value)).mean(-2)

    @abstractmethod
    def entropy(
        self, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Differential entropy of the targets in nats, (*batch,)."""

    def mutual_information(
        self, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Mutual information of the target and all weights, those of features too, (*batch,).

        In nats: `entropy`, as far as that is exact, less that of the noise.
        """
        noise = self.components.entropy() - self.components.mutual_information()
        return self.entropy(num_samples, generator) - noise.mean(-1)

    def affine(self, location: Tensor, scale: Tensor) -> RegressionMixture:
        """The predictive of location + scale · y."""
        location, scale = (t.unsqueeze(-2) if t.ndim > 1 else t for t in (location, scale))
        return type(self)(self.components.affine(location, scale))  # type: ignore[call-arg]

    def _mixed(self) -> RegressionPredictive:
        """The mixture of mixtures is one over all their components."""
        at = len(self.batch_shape) - 1
        return self.components.map(lambda tensor: tensor.flatten(at, at + 1))._mixed()

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

        return self.components.expand(*as_shape(sample_shape)).map(take).sample((), generator)

    def distribution(self) -> Distribution:
        """The mixture distribution of the outputs."""
        weights = Categorical(logits=torch.zeros_like(self.components.mean[..., 0]))
        return MixtureSameFamily(weights, self.components.distribution())

    def _quantiles(self) -> Tensor:
        """Those of all components."""
        quantiles = self.components._quantiles().movedim(-2, 0)  # (S, points, *batch, K)
        return quantiles.flatten(0, 1).sort(0).values

    def _sampled_entropy(self, num_samples: int, generator: torch.Generator | None) -> Tensor:
        """An unbiased estimate of the entropy, (*batch,)."""
        check_count("num_samples", num_samples)
        draws = self.sample((num_samples,), generator)
        return -self.expand(num_samples).log_prob(draws).mean(0)

    def _repeated(self, target: Tensor) -> Tensor:
        """A checked target for each of the components, (*batch, S, K)."""
        return self._target(target).unsqueeze(-2).expand_as(self.components.mean)


@dataclass(frozen=True, eq=False, repr=False)
class RegressionMixturePredictive(RegressionMixture):
    """Targets from one of S predictives of any family, each with probability 1/S.

    Attributes:
        components: of batch shape (*batch, S).
    """

    components: RegressionPredictive

    def entropy(
        self, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Differential entropy of the targets in nats, estimated from samples, (*batch,)."""
        return self._sampled_entropy(256 if num_samples is None else num_samples, generator)
