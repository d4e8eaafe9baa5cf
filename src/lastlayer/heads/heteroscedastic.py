"""Regression with noise that depends on the input: two Gaussian last layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import check_count
from ..covariances import CovarianceLike
from ..functional import (
    at_least_float32,
    expected_heteroscedastic_log_density,
    expected_log_noise_prior,
    expected_root_precision,
)
from ..predictive import HeteroscedasticPredictive
from ..priors import Prior
from ._log_noise import LogNoise
from ._log_noise_solver import solve, update
from ._targets import RealTargets

MAX_CHANGE = 20.0  # of a predicted log-variance: a standard deviation 22,000 times as large
MAX_UNCERTAINTY = 9.0  # variance of a predicted log-variance


class HeteroscedasticRegression(RealTargets):
    r"""Bayesian linear regression on features, with noise that depends on them.

    $$y_k = w_k^\top\phi + \varepsilon_k,\qquad \varepsilon_k \sim N(0, e^{g_k}),\qquad
      g_k = v_k^\top\phi'$$

    Both layers have Gaussian posteriors, $q(w_k) = N(\bar w_k, S_k)$ and
    $q(v_k) = N(\bar v_k, S'_k)$. The expected log-likelihood is closed, because $E[e^{-g}]$ of a
    Gaussian g is. The predictive has an uncertain, log-normal variance.

    It is initialised with constant noise, where it is `Regression`. φ' are the features, or the
    last `num_noise_features` of them, and a constant.

    Args:
        num_features: N, the width of the features.
        num_outputs: K, the number of targets, with independent noise.
        num_data: T, the number of training examples.
        covariance: of the weights of each output.
        noise_covariance: of the weights of each output's log-noise.
        num_noise_features: how many of the features, the last ones, the noise depends on; None is
            all. The mean depends on all.
        prior: of weights and noise; that of the noise counts as in `Regression`, spread evenly
            over the examples.
        noise_prior: of the weights of the log-noise, whose `variance` and `bias_variance` alone
            count; None is `LogNoise.default_prior`.
        bias: whether to append a constant feature for the mean, so that the bias is Bayesian too.
        device: of the parameters.
        dtype: of the parameters.

    Attributes:
        log_noise: the layer of the log-noise, with its own `mean`, `covariance` and `prior`.
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int = 1,
        *,
        num_data: float,
        covariance: CovarianceLike = "shared",
        noise_covariance: CovarianceLike = "shared",
        num_noise_features: int | None = None,
        prior: Prior | None = None,
        noise_prior: Prior | None = None,
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
        self.log_noise = LogNoise(
            num_noise_features,
            num_outputs,
            num_head_features=num_features,
            num_data=num_data,
            covariance=noise_covariance,
            prior=noise_prior,
            device=device,
            dtype=dtype,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise, with constant unit noise; see `initialize` for targets of another scale."""
        super().reset_parameters()
        self.log_noise.set_constant(torch.ones_like(self.log_noise.mean[:, 0]))

    def _assign_noise(self, variance: Tensor) -> None:
        self.log_noise.set_constant(variance)

    # ------------------------------------------------------------------------- two calls

    def predict(self, features: Tensor) -> HeteroscedasticPredictive:
        """The predictive, exact under the posterior within any reasonable noise.

        Far from the data a linear log-noise leads to variances beyond all numbers: its mean is
        limited to MAX_CHANGE from its constant, and its variance to MAX_UNCERTAINTY.
        """
        mean = at_least_float32(F.linear(features, self.mean))
        quadratic = at_least_float32(self.covariance.quadratic(features))
        inputs = self.log_noise.inputs(features, self)
        log_mean = at_least_float32(F.linear(inputs, self.log_noise.mean))
        log_variance = at_least_float32(self.log_noise.covariance.quadratic(inputs))
        level = at_least_float32(self.log_noise.mean[:, -1])
        return HeteroscedasticPredictive(
            mean,
            quadratic,
            log_mean.clamp(level - MAX_CHANGE, level + MAX_CHANGE),
            log_variance.clamp(max=MAX_UNCERTAINTY),
        )

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Expected log-likelihood, summed over outputs, (*batch,), KL and log p(noise)."""
        error, weight = self._errors(features, target, weight)
        quadratic, trace, logdet = self.covariance.quadratic_terms(features)
        inputs = self.log_noise.inputs(features, self)
        log_mean = at_least_float32(F.linear(inputs, self.log_noise.mean))
        log_variance, *noise_terms = self.log_noise.covariance.quadratic_terms(inputs)
        precision = expected_root_precision(log_mean, log_variance)
        terms = expected_heteroscedastic_log_density(error, quadratic, log_mean, precision)
        prior = self.prior
        log_priors = expected_log_noise_prior(
            log_mean, precision, prior.noise_dof, prior.noise_scale
        )
        if weight is not None:
            terms, log_priors = terms * weight, log_priors * weight
        kl = self._divergence(self._deviation(), trace, logdet)
        kl = kl + self.log_noise._divergence(self.log_noise._deviation(), *noise_terms)
        return terms.sum(-1), kl, log_priors.sum(-1).mean()

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
        r"""Minimise the loss in a few passes over fixed features.

        A head whose noise is new begins at the exact fit of `Regression` with constant noise. Then
        the two layers are improved alternately: given the noise the weights have the closed form
        $S_k^{-1} = I/s + \sum_t e^{v_{tk}/2 - m_{tk}}\phi_t\phi_t^\top/\lambda$; given the weights
        the log-noise takes a Newton step. The loss never rises.
        """
        self._check_assignable()
        told = (lambda loss: None) if report is None else report
        solve(self, features, target, weight, max_passes, tolerance, told)

    def fit_exact(self, *data: Tensor, **options: object) -> None:
        """Refused: there is no closed form of both layers together."""
        raise TypeError(
            "noise that depends on the input has no exact posterior; call fit_features, which "
            "minimises the loss in a few passes, or use Regression"
        )

    @torch.no_grad()
    def update(self, features: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        r"""Condition the weights on new data; the noise, a function of the input, stays.

        Given the noise the posterior is known: $S_k^{-1}$ grows by
        $\sum_t e^{v_{tk}/2 - m_{tk}}\phi_t\phi_t^\top/\lambda$, so that neither the order of the
        data matters nor how they are divided over calls. A new head is updated from its prior.
        """
        self._check_assignable()
        update(self, features, target, weight)

    def sample_weights(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws of W, (num_samples, K, N), with one more feature if there is a bias."""
        return at_least_float32(self.mean) + self.covariance.sample(num_samples, generator)
