"""The exact posterior of Bayesian linear regression, and its recursive update."""

from __future__ import annotations

import torch
from torch import Tensor

from .._checks import check_finite, check_target, check_weights
from ..functional import conjugate
from ..functional.conjugate import RegressionStatistics
from ._conjugate import ConjugateHead
from ._targets import RealTargets


class ConjugateRegression(ConjugateHead, RealTargets):
    """Exact inference for a Gaussian last layer with Gaussian noise.

    The natural parameters are G = ΦᵀΦ and C = (Y − ΦMᵀ)ᵀΦ, with the prior's mean M.

    Attributes:
        diagonal_noise: whether Σ is diagonal.
        conjugate: whether the rows of W share the noise covariance.
    """

    by_residuals = True
    diagonal_noise: bool

    def _check_weight(self, weight: Tensor, batch_shape: torch.Size) -> Tensor:
        weight = super()._check_weight(weight, batch_shape)
        if weight.shape[-1] != 1 and not self.diagonal_noise:
            raise ValueError(
                "weights per output need noise='diagonal': with correlated noise the outputs "
                f"of an example cannot be weighed apart; pass weights of shape {tuple(batch_shape)}"
            )
        return weight

    def _statistics(
        self, features: Tensor, target: Tensor, weight: Tensor | None, reference: Tensor | None
    ) -> RegressionStatistics:
        batch_shape = features.shape[:-1]
        features = self._inputs(features).double().reshape(-1, self.width)
        target = check_target(target, batch_shape, self.num_outputs).double()
        check_finite("features", features)
        if weight is None:
            weight = features.new_ones(batch_shape)
        weight = self._check_weight(weight, batch_shape).double()
        check_weights(weight)
        target = target.where(weight != 0, 0.0).reshape(-1, self.num_outputs)
        check_finite("targets", target)
        weight = weight.reshape(-1, weight.shape[-1])  # (T, 1) or (T, K)
        if reference is None:
            reference = self._prior_mean().double()
        return conjugate.regression_statistics(features, target, weight, reference)

    def _information(self, data: RegressionStatistics) -> tuple[Tensor, ...]:
        """G and C about the prior's mean, which do not depend on the noise."""
        return data.gram, data.cross_about(self._prior_mean())

    def _check_update(self, data: RegressionStatistics) -> None:
        if not self.covariance.full:
            raise TypeError(
                f"update needs a covariance that holds the posterior exactly, and "
                f"{type(self.covariance).__name__} does not: use covariance='dense' or 'shared', "
                "or call fit_exact on all the data"
            )

    def _loses(self, data: RegressionStatistics) -> bool:
        """Whether weights per output give every output its own posterior, and S is shared."""
        return self.covariance.shared and len(data.gram) > 1

    def _prior_deviation(self) -> Tensor:
        """W̄ about its prior, in units of the row covariance: the identity or, if conjugate, Σ."""
        deviation = self._deviation()
        return self.noise.whiten(deviation.mT).mT if self.conjugate else deviation

    def _coefficients(self) -> Tensor:
        """How much a unit of ΦᵀΦ adds to the precision of each output's weights, (K,)."""
        if self.conjugate:
            return torch.ones_like(self.noise.log_precision_scale)
        return self.noise.precision_diagonal()

    def _set_posterior(self, gram: Tensor, cross: Tensor, *others: Tensor) -> None:
        """Set mean and covariance from G = ΦᵀΦ, (K or 1, N, N), and C = (Y − ΦMᵀ)ᵀΦ, (K, N)."""
        gram, cross = gram / self.prior.kl_weight, cross / self.prior.kl_weight
        coefficients, variance = self._coefficients(), self._prior_by_feature()
        precision = conjugate.posterior_precision(gram, coefficients, variance)
        self.covariance.project(precision)
        if self.conjugate or self.diagonal_noise:
            deviation = conjugate.posterior_mean(precision, coefficients, cross)
        else:
            deviation = conjugate.correlated_posterior_mean(
                gram, cross, self.noise.precision(), variance
            )
        self.mean.copy_(self._prior_mean() + deviation)

    def _present(self) -> tuple[Tensor, ...]:
        """The G and C of data that would lead to the present posterior."""
        coefficients = self._coefficients()[:, None, None]
        if self.covariance.shared:  # S⁻¹ = I/s + mean(coefficient) G
            coefficients = coefficients.mean(0, keepdim=True)
        precision = self.covariance.precision()
        if self.fresh:  # neither trained nor fitted: as initialised, which is not the prior
            return torch.zeros_like(precision), torch.zeros_like(self.mean)
        variance = self._prior_by_feature()
        gram = (precision - conjugate.eye_like(precision) / variance) / coefficients
        rows = None if self.conjugate else self.noise.covariance()
        cross = conjugate.cross_of_posterior(self._deviation(), gram, rows, variance)
        return self.prior.kl_weight * gram, self.prior.kl_weight * cross

    def _optimal_scatter(self, data: RegressionStatistics) -> tuple[Tensor, Tensor]:
        """Scatter of residuals and of the posterior, (K, K), and the number of examples, (K,)."""
        scatter = conjugate.residual_scatter(data, self.mean)
        if self.conjugate:  # through the prior of W, whose covariance has Σ
            weight = self.prior.kl_weight / self._prior_by_feature()
            deviation = self._deviation()
            return scatter + weight * deviation @ deviation.mT, data.counts
        quadratics = (self.covariance.dense() * data.gram).sum((-2, -1))  # Σ_t φᵀS_kφ
        return scatter + quadratics.diag_embed(), data.counts
