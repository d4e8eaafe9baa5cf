"""Predictives of regression with Student's t: an uncertain noise variance, and heavy tails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import (
    Categorical,
    Distribution,
    Independent,
    MixtureSameFamily,
    StudentT,
)

from ..functional import LOG_2PI
from ..functional.student_t import (
    gamma_correction,
    gamma_nodes,
    gauss_gamma_nodes,
    student_t_entropy,
    student_t_log_density,
)
from ._base import as_shape
from .scale_mixture import ScaleMixture

NUM_NODES = 49  # of an uncertain precision, whatever it is
NUM_TAIL_NODES = 41  # of each example's own precision


@dataclass(frozen=True, eq=False, repr=False)
class StudentTPredictive(ScaleMixture):
    """Independent targets with Student's t: Gaussian, but for an uncertain variance.

    Attributes:
        mean: (*batch, K).
        epistemic_scale: squared scale due to the weights, (*batch, K).
        noise_scale: squared scale due to noise, (*batch, K).
        dof: degrees of freedom, (*batch, K).
    """

    mean: Tensor
    epistemic_scale: Tensor
    noise_scale: Tensor
    dof: Tensor

    @property
    def epistemic_variance(self) -> Tensor:  # type: ignore[override]
        """Variance due to the weights, (*batch, K); infinite for two degrees of freedom or less."""
        return self._widened(self.epistemic_scale)

    @property
    def noise_variance(self) -> Tensor:  # type: ignore[override]
        """Variance due to noise, (*batch, K); infinite for two degrees of freedom or less."""
        return self._widened(self.noise_scale)

    def _widened(self, scale: Tensor) -> Tensor:
        return scale * _widening(self.dof)

    def log_prob_per_output(self, target: Tensor) -> Tensor:
        """Log-density of each target, (*batch, K)."""
        scale = self.epistemic_scale + self.noise_scale
        return student_t_log_density(self._target(target) - self.mean, scale, self.dof)

    def mutual_information(self) -> Tensor:
        """Mutual information of the target, the weights and the noise's variance, (*batch,)."""
        return self.entropy() - self._noise_entropy().sum(-1)

    def _noise_entropy(self) -> Tensor:
        """Mean entropy of noise of known variance, (*batch, K)."""
        return 0.5 * (self.noise_scale.log() + LOG_2PI + 1) - gamma_correction(0.5 * self.dof)

    def affine(self, location: Tensor, scale: Tensor) -> StudentTPredictive:
        """The predictive of location + scale · y."""
        square = scale.square()
        return replace(
            self,
            mean=location + scale * self.mean,
            epistemic_scale=square * self.epistemic_scale,
            noise_scale=square * self.noise_scale,
        )

    def sample(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws of the targets, (*sample_shape, *batch, K)."""
        return self.mean + self._stddevs(sample_shape, generator) * self._normal(
            sample_shape, generator
        )

    def _stddevs(
        self, sample_shape: Sequence[int] | int, generator: torch.Generator | None
    ) -> Tensor:
        """Draws of the standard deviation, (*sample_shape, *batch, K)."""
        precision = _gamma(0.5 * self.dof, sample_shape, generator)
        return ((self.epistemic_scale + self.noise_scale) / precision).sqrt()

    def distribution(self) -> Distribution:
        """Independent Student's t distributions."""
        scale = (self.epistemic_scale + self.noise_scale).sqrt()
        return Independent(StudentT(self.dof, self.mean, scale), 1)

    def _components(self) -> tuple[Tensor, Tensor]:
        precisions, log_probs = gamma_nodes(0.5 * self.dof, NUM_NODES)
        scale = (self.epistemic_scale + self.noise_scale).unsqueeze(-1)
        return scale / precisions, log_probs


@dataclass(frozen=True, eq=False, repr=False)
class HeavyTailedPredictive(StudentTPredictive):
    """Independent targets with noise of Student's t, and an uncertain scale of it.

    Attributes:
        mean: (*batch, K).
        epistemic_scale: squared scale due to the weights, (*batch, K).
        noise_scale: squared scale of the noise, (*batch, K).
        dof: degrees of freedom that the data leave to the scale, (*batch, K).
        noise_dof: degrees of freedom of the noise, above two, (*batch, K).
    """

    noise_dof: Tensor

    @property
    def noise_variance(self) -> Tensor:  # type: ignore[override]
        """Variance due to noise, (*batch, K)."""
        return self._widened(self.noise_scale) * _widening(self.noise_dof)

    def log_prob_per_output(self, target: Tensor) -> Tensor:
        """Log-density of each target, (*batch, K)."""
        error = (self._target(target) - self.mean).unsqueeze(-1)
        scales, log_probs = self._scales()
        densities = student_t_log_density(error, scales, self.dof.unsqueeze(-1))
        return (log_probs + densities).logsumexp(-1)

    def _noise_entropy(self) -> Tensor:
        own = 0.5 * self.noise_scale.log() - gamma_correction(0.5 * self.dof)
        return own + student_t_entropy(self.noise_dof)

    def _stddevs(
        self, sample_shape: Sequence[int] | int, generator: torch.Generator | None
    ) -> Tensor:
        tail = _gamma(0.5 * self.noise_dof, sample_shape, generator)
        precision = _gamma(0.5 * self.dof, sample_shape, generator)
        return ((self.epistemic_scale + self.noise_scale / tail) / precision).sqrt()

    def distribution(self) -> Distribution:
        """Independent mixtures of Student's t distributions."""
        scales, log_probs = self._scales()
        parts = StudentT(self.dof.unsqueeze(-1), self.mean.unsqueeze(-1), scales.sqrt())
        return Independent(MixtureSameFamily(Categorical(logits=log_probs), parts), 1)

    def _scales(self) -> tuple[Tensor, Tensor]:
        """Squared scales of Student's t, given u, and log-probabilities of u, (*batch, K, C)."""
        tails, log_probs = gamma_nodes(0.5 * self.noise_dof, NUM_TAIL_NODES)
        return self.epistemic_scale.unsqueeze(-1) + self.noise_scale.unsqueeze(
            -1
        ) / tails, log_probs

    def _components(self) -> tuple[Tensor, Tensor]:
        scales, log_probs = self._scales()
        precisions, more = gauss_gamma_nodes(0.5 * self.dof)  # (*batch, K, 3)
        variances = scales.unsqueeze(-2) / precisions.unsqueeze(-1)
        both = log_probs.unsqueeze(-2) + more.unsqueeze(-1)
        return variances.flatten(-2), both.flatten(-2)


def _widening(dof: Tensor) -> Tensor:
    """The variance of Student's t of unit scale, elementwise."""
    return torch.where(dof > 2, dof / (dof - 2).clamp_min(1e-30), torch.inf)


def _gamma(
    concentration: Tensor, sample_shape: Sequence[int] | int, generator: torch.Generator | None
) -> Tensor:
    """Draws of Gamma(a, a), (*sample_shape, *shape)."""
    shape = concentration.expand(*as_shape(sample_shape), *concentration.shape).contiguous()
    return torch._standard_gamma(shape, generator=generator) / concentration
