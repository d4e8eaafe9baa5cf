"""Regression: a Gaussian last layer with Gaussian noise (paper, section 2.1, appendix A)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import check_choice, check_count, check_labels, check_target, check_weight
from ..covariances import CovarianceLike
from ..functional import at_least_float32, expected_gaussian_log_density, of_output
from ..noise import NOISES
from ..predictive import (
    GaussianPredictive,
    JointGaussianPredictive,
    JointMatrixNormalPredictive,
    JointMultivariateGaussianPredictive,
    JointPredictive,
    MultivariateGaussianPredictive,
)
from ..priors import Prior
from ._conjugate_regression import ConjugateRegression


class Regression(ConjugateRegression):
    r"""Bayesian linear regression on features, $y = W\phi + \varepsilon$.

    The posterior of the weights is Gaussian, $q(w_k) = N(\bar w_k, S_k)$, and the predictive
    $N(\bar W\phi,\ \mathrm{diag}(\phi^\top S_k\phi) + \Sigma)$ is exact. If the rows of W share
    the noise covariance (`row_covariance="noise"`), the posterior is the conjugate
    $MN(\bar W, \Sigma, S)$ and the predictive $N(\bar W\phi, (1 + \phi^\top S\phi)\Sigma)$.

    `fit_exact` sets $S_k^{-1} = I/s + (\Sigma^{-1})_{kk}\Phi^\top\Phi/\lambda$, without the noise
    if conjugate, and the mean of the exact posterior, with W about `prior_mean`.

    Args:
        num_features: N, the width of the features.
        num_outputs: K, the number of targets.
        num_data: T, the number of training examples.
        covariance: of the weights of each output.
        noise: "diagonal" for independent noise, "dense" for correlated noise.
        row_covariance: "identity" (the paper) or "noise" (conjugate, exact for any Σ).
        prior: of weights and noise.
        bias: whether to append a constant feature, so that the bias is Bayesian too.
        device: of the parameters.
        dtype: of the parameters.
    """

    fits_parts = True

    def __init__(
        self,
        num_features: int,
        num_outputs: int = 1,
        *,
        num_data: float,
        covariance: CovarianceLike = "shared",
        noise: Literal["diagonal", "dense"] = "diagonal",
        row_covariance: Literal["identity", "noise"] = "identity",
        prior: Prior | None = None,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_count("num_outputs", num_outputs)
        check_choice("noise", noise, NOISES)
        check_choice("row_covariance", row_covariance, ["identity", "noise"])
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
        self.diagonal_noise = noise == "diagonal"
        self.conjugate = row_covariance == "noise"
        if self.conjugate and not (self.diagonal_noise or self.covariance.shared):
            raise ValueError(
                "row_covariance='noise' with noise='dense' needs one S for all outputs; "
                "use covariance='shared', or noise='diagonal'"
            )
        self.noise = NOISES[noise](num_outputs, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise, with unit noise; see `initialize` for targets of another scale."""
        super().reset_parameters()
        self.noise.set_isotropic(1.0)

    def _assign_noise(self, variance: Tensor) -> None:
        self.noise.assign(variance.diag_embed())

    # ------------------------------------------------------------------------- two calls

    def predict(self, features: Tensor) -> GaussianPredictive | MultivariateGaussianPredictive:
        """The predictive, exact under the posterior."""
        mean = at_least_float32(F.linear(features, self.mean))
        quadratic = at_least_float32(self.covariance.quadratic(features))  # (*batch, K)
        if self.diagonal_noise:
            variance = at_least_float32(self.noise.variance()).expand_as(mean)
            epistemic = quadratic * variance if self.conjugate else quadratic
            return GaussianPredictive(mean, epistemic, variance)
        noise = at_least_float32(self.noise.covariance())
        covariance = noise.expand(*mean.shape, self.num_outputs)
        shared = quadratic[..., :1, None] * noise
        epistemic = shared if self.conjugate else quadratic.diag_embed()
        return MultivariateGaussianPredictive(mean, epistemic, covariance)

    def joint(self, features: Tensor) -> JointPredictive:
        """One Gaussian over several points (*batch, q, num_features) together, exact as well."""
        mean, factor = self._joint_moments(features)
        batch_shape = mean.shape[:-2]
        if self.diagonal_noise:
            scale = at_least_float32(self.noise.variance()).sqrt()
            factor = factor * scale[:, None, None] if self.conjugate else factor
            return JointGaussianPredictive(mean, factor, scale.expand(*batch_shape, -1))
        family = (
            JointMatrixNormalPredictive if self.conjugate else JointMultivariateGaussianPredictive
        )
        return family(mean, factor, self.noise.covariance_root().expand(*batch_shape, -1, -1))

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Expected log-likelihood (theorem 1), summed over outputs, (*batch,), KL and log p(Σ)."""
        error, weight = self._errors(features, target, weight)
        quadratic, trace, logdet = self.covariance.quadratic_terms(features)
        if self.conjugate:  # Cov(Wφ) = φᵀSφ Σ, so that the noise cancels in the trace
            white = self.noise.whiten(error)
            squares, precision_trace = torch.addcmul(quadratic, white, white), None
        else:
            squares, precision_trace = self.noise.squares(error, quadratic)
        terms = expected_gaussian_log_density(squares, self.noise.log_precision_scale)
        terms = terms if weight is None else terms * weight
        bounds = terms.squeeze(-1) if self.num_outputs == 1 else terms.sum(-1)
        kl = self._divergence(self._prior_deviation(), trace, logdet)
        return bounds, kl, self.noise.log_prior(self.prior, precision_trace)

    def observed_objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None, output: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The objective with weight zero for all outputs but one of each example."""
        batch_shape = features.shape[:-1]
        if not self.diagonal_noise:
            raise ValueError(
                "an observed output needs noise='diagonal': correlated noise ties it to the others"
            )
        output = check_labels(output, batch_shape, "output")
        target = check_target(target, batch_shape, 1).squeeze(-1).to(self.mean.dtype)
        if weight is not None:
            weight = check_weight(weight, batch_shape, None).to(self.mean.dtype)
            target = target.where(weight != 0, 0.0)
        error = at_least_float32(target - of_output(F.linear(features, self.mean), output))
        quadratic, trace, logdet = self.covariance.observed_terms(features, output)
        log_scale = at_least_float32(self.noise.log_precision_scale)
        log_scale = of_output(log_scale.expand(*batch_shape, -1), output)
        precision = (2 * log_scale).exp()
        spread = quadratic if self.conjugate else quadratic * precision
        squares = torch.addcmul(spread, error * error, precision)
        bounds = expected_gaussian_log_density(squares, log_scale)
        bounds = bounds if weight is None else bounds * weight
        kl = self._divergence(self._prior_deviation(), trace, logdet)
        return bounds, kl, self.noise.log_prior(self.prior)

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        rows = "noise" if self.conjugate else "identity"
        return f"{super().extra_repr()}, row_covariance={rows!r}"

    def sample_weights(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws of W, (num_samples, K, N), with one more feature if there is a bias."""
        noise = self.covariance.sample(num_samples, generator)
        if self.conjugate:
            noise = self.noise.color(noise.mT).mT
        return at_least_float32(self.mean) + noise
