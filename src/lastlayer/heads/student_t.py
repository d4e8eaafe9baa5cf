"""Regression with an uncertain noise variance and heavy tails: Student's t, without sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._checks import check_count, check_positive
from ..covariances import CovarianceLike
from ..functional import at_least_float32, conjugate
from ..functional.conjugate import RegressionStatistics
from ..functional.student_t import dof_log_prior, expected_student_t_log_density
from ..noise import GammaNoise
from ..predictive import HeavyTailedPredictive, StudentTPredictive
from ..priors import Prior
from ._conjugate_regression import ConjugateRegression
from ._student_t_solver import solve

LOWEST_DOF = 2.1  # that are learned: the variance of noise is then at most 21 times its scale
INITIAL_DOF = 10.0


class StudentTRegression(ConjugateRegression):
    r"""Bayesian linear regression on features, with an uncertain noise variance and heavy tails.

    $$y_k = w_k^\top\phi + \varepsilon_k,\qquad \varepsilon_k \sim N(0, \sigma_k^2/u_k),\qquad
      u_k \sim \mathrm{Gamma}(\tfrac{\eta_k}2, \tfrac{\eta_k}2)$$

    so that the noise has Student's t with $\eta$ degrees of freedom, of each example its own u. The
    posterior of weights and noise is normal–inverse-gamma, $q(w_k|\sigma_k^2) = N(\bar w_k,
    \sigma_k^2 S_k)$ and $1/\sigma_k^2 \sim \mathrm{Gamma}(a_k, b_k)$, with the prior
    $\mathrm{Gamma}(\nu/2, m/2)$; u is integrated out under its best posterior.

    Outliers hardly move the fit: an example counts $(\eta + 1)/(\eta + \delta)$ times, where δ is
    its squared error in units of the noise. The degrees of freedom are learned, above two so that
    there is a variance. Without tails (`degrees_of_freedom=math.inf`) the posterior is conjugate:
    `fit_exact` and `update` are exact, and the predictive is Student's t.

    Args:
        num_features: N, the width of the features.
        num_outputs: K, the number of targets, with independent noise.
        num_data: T, the number of training examples.
        covariance: of the weights of each output, in units of its noise.
        degrees_of_freedom: η of the noise: "learned", a number above two, or `math.inf` for
            Gaussian noise of uncertain variance.
        prior: of weights, in units of the noise, and of the noise.
        bias: whether to append a constant feature, so that the bias is Bayesian too.
        device: of the parameters.
        dtype: of the parameters.
    """

    conjugate = True
    diagonal_noise = True
    heavy_tails = True
    noise: GammaNoise

    def __init__(
        self,
        num_features: int,
        num_outputs: int = 1,
        *,
        num_data: float,
        covariance: CovarianceLike = "shared",
        degrees_of_freedom: float | Literal["learned"] = "learned",
        prior: Prior | None = None,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_count("num_outputs", num_outputs)
        super().__init__(
            num_features,
            num_outputs,
            num_data=num_data,
            covariance=covariance,
            prior=prior,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        check_positive("prior.noise_dof, of a Gamma distribution,", self.prior.noise_dof)
        self.degrees_of_freedom = _checked(degrees_of_freedom)
        self.noise = GammaNoise(num_outputs, device=device, dtype=dtype)
        if self.learns_tails:
            self.log_excess_dof = nn.Parameter(torch.zeros_like(self.noise.log_concentration))
        self.reset_parameters()

    @property
    def learns_tails(self) -> bool:
        """Whether the degrees of freedom of the noise are learned."""
        return isinstance(self.degrees_of_freedom, str)

    def noise_dof(self) -> Tensor | None:
        """Degrees of freedom of the noise, η, (K,); None for Gaussian noise."""
        if isinstance(self.degrees_of_freedom, str):
            return LOWEST_DOF + at_least_float32(self.log_excess_dof).exp()
        if math.isinf(self.degrees_of_freedom):
            return None
        return torch.full_like(self.noise.concentration().detach(), self.degrees_of_freedom)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise, with unit noise, as certain as T examples would leave it."""
        super().reset_parameters()
        self.noise.set_isotropic(1.0)
        self.noise.log_concentration.fill_(0.5 * (self.prior.noise_dof + self.num_data)).log_()
        if self.learns_tails:
            self.log_excess_dof.fill_(INITIAL_DOF - LOWEST_DOF).log_()

    def _assign_noise(self, variance: Tensor) -> None:
        self.noise.assign(variance.diag_embed())

    # ------------------------------------------------------------------------- two calls

    def predict(self, features: Tensor) -> StudentTPredictive:
        """The predictive, exact under the posterior."""
        mean = at_least_float32(F.linear(features, self.mean))
        quadratic = at_least_float32(self.covariance.quadratic(features))
        scale = self.noise.variance().expand_as(mean)
        freedom = (2 * self.noise.concentration()).expand_as(mean)
        tails = self.noise_dof()
        if tails is None:
            return StudentTPredictive(mean, quadratic * scale, scale, freedom)
        return HeavyTailedPredictive(mean, quadratic * scale, scale, freedom, tails.expand_as(mean))

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Bound on the expected log-likelihood, (*batch,), KL and log p(η)."""
        error, weight = self._errors(features, target, weight)
        quadratic, trace, logdet = self.covariance.quadratic_terms(features)
        white, tails = self.noise.whiten(error), self.noise_dof()
        terms = expected_student_t_log_density(
            torch.addcmul(quadratic, white, white), self.noise.expected_log_precision_scale(), tails
        )
        terms = terms if weight is None else terms * weight
        kl = self._divergence(self._prior_deviation(), trace, logdet)
        kl = kl + self.noise.divergence(self.prior)
        if tails is None or not self.learns_tails:
            return terms.sum(-1), kl, kl.new_zeros(())
        return terms.sum(-1), kl, dof_log_prior(tails).sum()

    # ------------------------------------------------------------------------ exact fits

    def fit_exact(
        self,
        features: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        estimate_noise: bool = True,
        max_iterations: int = 200,
    ) -> None:
        """Set the exact posterior of weights and noise, without tails; see `Regression.fit_exact`.

        The posterior of the noise belongs to it, whatever `estimate_noise` is.
        """
        self._check_conjugate("fit_exact", "call fit_features")
        super().fit_exact(features, target, weight, max_iterations=max_iterations)
        data = self._gather(features, target, weight, self.mean.detach().double())
        fit = self._in_double()  # with errors of the fit itself, which large targets do not drown
        fit._set_noise(conjugate.residual_scatter(data, fit.mean).diagonal(), data.counts)
        self._take(fit)

    def _check_update(self, data: RegressionStatistics) -> None:
        self._check_conjugate("update", "call fit_features on all the data")
        super()._check_update(data)

    def _check_conjugate(self, name: str, instead: str) -> None:
        if self.noise_dof() is not None:
            raise TypeError(
                f"{name} is exact for Gaussian noise only: {instead}, or use "
                "degrees_of_freedom=math.inf"
            )

    def _information(self, data: RegressionStatistics) -> tuple[Tensor, ...]:
        """G and C, and the sums of squares about the prior's mean and of weights, (K,) each."""
        scatter = conjugate.residual_scatter(data, self._prior_mean())
        return *super()._information(data), scatter.diagonal(), data.counts

    def _present(self) -> tuple[Tensor, ...]:
        gram, cross = super()._present()
        if self.fresh:
            nothing = torch.zeros_like(cross[:, 0])
            return gram, cross, nothing, nothing
        concentration = self.noise.concentration()
        rate, prior = concentration * self.noise.variance(), self.prior
        explained = 2 * (rate - 0.5 * prior.noise_scale)
        deviation = self._deviation()
        explained = explained + _quadratic(deviation, self.covariance.precision())
        counts = 2 * (concentration - 0.5 * prior.noise_dof)
        return gram, cross, prior.kl_weight * explained, prior.kl_weight * counts

    def _set_posterior(self, gram: Tensor, cross: Tensor, *others: Tensor) -> None:
        super()._set_posterior(gram, cross)
        square, counts = others
        deviation = self._deviation()
        explained = _quadratic(deviation, gram) - 2 * (deviation * cross).sum(-1)
        self._set_noise((square + explained).clamp_min(0.0), counts)

    def _set_noise(self, scatter: Tensor, counts: Tensor) -> None:
        """Set the posterior of the noise from sums of squared errors and of weights, (K,) each."""
        prior = self.prior
        shrunk = (self._deviation().square() / self._prior_by_feature()).sum(-1)
        rate = 0.5 * (prior.noise_scale + scatter / prior.kl_weight + shrunk)
        self.noise.assign_gamma(0.5 * (prior.noise_dof + counts / prior.kl_weight), rate)

    # ------------------------------------------------------------------------ how it is used

    def fit_features(
        self,
        features: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        max_passes: int = 50,
        tolerance: float = 1e-4,
        max_memory_bytes: int = 2**31,
        report: Callable[[float], None] | None = None,
    ) -> None:
        """Fit in closed form without tails; with tails, alternate closed forms over the features.

        Every pass weighs the examples by their errors, sets weights and noise to their exact
        posterior given these, and then the degrees of freedom. The loss never rises.
        """
        if self.noise_dof() is None:
            super().fit_features(features, target, weight)
            return
        self._check_assignable()
        told = (lambda loss: None) if report is None else report
        solve(self, features, target, weight, max_passes, tolerance, told)

    def sample_weights(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws of W, (num_samples, K, N), with one more feature if there is a bias."""
        noise = self.noise.color(self.covariance.sample(num_samples, generator).mT).mT
        concentration = self.noise.concentration()
        draws = torch._standard_gamma(
            concentration.expand(num_samples, -1).contiguous(), generator=generator
        )
        return at_least_float32(self.mean) + noise * (concentration / draws).sqrt().unsqueeze(-1)

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        return f"{super().extra_repr()}, degrees_of_freedom={self.degrees_of_freedom!r}"


def _checked(dof: float | Literal["learned"]) -> float | Literal["learned"]:
    if dof == "learned" or (not isinstance(dof, str) and dof > 2):
        return dof
    raise ValueError(
        f"degrees_of_freedom must be 'learned', a number above 2 or math.inf, got {dof!r}; with "
        "fewer the noise has no variance"
    )


def _quadratic(deviation: Tensor, matrices: Tensor) -> Tensor:
    """wᵀMw of each output, (K,), for one matrix or K."""
    return (deviation * (matrices @ deviation.unsqueeze(-1)).squeeze(-1)).sum(-1)
