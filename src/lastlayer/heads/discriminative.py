"""Discriminative classification: a Bayesian softmax layer (paper, section 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._checks import check_choice, check_count, check_labels, check_weight
from .._processes import summed
from ..covariances import CovarianceLike
from ..functional import at_least_float32, inverse_wishart_exponent
from ..functional.bounds import BOUNDS
from ..noise import DiagonalNoise
from ..predictive import DiscriminativePredictive, JointLogitPredictive
from ..priors import Prior
from ._base import Head
from ._linear import Cached, as_linear
from ._solver import solve

MAX_DENSE_WEIGHTS = 4096  # of all classes: a layer with more gets diagonal covariances
MIN_BIAS_VARIANCE = 1e-6  # of the prior, where features are all but zero


class DiscriminativeClassification(Head):
    r"""Bayesian logistic regression on features, $y \sim \mathrm{softmax}(W\phi+\varepsilon)$.

    The posterior of the weights is Gaussian, $q(w_k) = N(\bar w_k, S_k)$; the logits are
    independent, $z_k \sim N(\bar w_k^\top\phi,\ \phi^\top S_k\phi + \sigma_k^2)$.

    Without a prior it expects logits of unit variance from features of unit mean square: weights
    of variance 1/N, and a bias of variance 1. `Prior()` is the paper's, of variance 1.

    Args:
        num_features: N, the width of the features.
        num_classes: K.
        num_data: T, the number of training examples.
        covariance: of the weights of each class.
        bound: on the expected log-softmax, "tilted" or "jensen" (the paper, looser).
        noise: label noise σ_k², "diagonal" (learned, the paper) or "none".
        prior: of weights and noise; None is `default_prior`.
        bias: whether to append a constant feature, so that the bias is Bayesian too.
        device: of the parameters.
        dtype: of the parameters.
    """

    min_outputs = 2
    fits_parts = True

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        num_data: float,
        covariance: CovarianceLike = "dense",
        bound: Literal["jensen", "tilted"] = "tilted",
        noise: Literal["diagonal", "none"] = "diagonal",
        prior: Prior | None = None,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_count("num_classes", num_classes, 2, "a binary question has two classes")
        check_choice("bound", bound, BOUNDS)
        check_choice("noise", noise, ["diagonal", "none"])
        super().__init__(
            num_features,
            num_classes,
            num_data=num_data,
            covariance=covariance,
            prior=prior,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        self.bound = bound
        self.noise = (
            DiagonalNoise(num_classes, device=device, dtype=dtype) if noise == "diagonal" else None
        )
        self.reset_parameters()

    @classmethod
    def default_prior(cls, num_features: int) -> Prior:
        """Logits of unit variance for features of unit mean square, whatever the width."""
        return Prior(variance=1 / num_features, bias_variance=1.0)

    @property
    def num_densities(self) -> int:
        """One Gaussian per class describes the features."""
        return self.num_outputs

    @property
    def logit_layer(self) -> tuple[Tensor, Tensor]:
        """Means of weights, (K, N), and of biases, (K,), zero if there are none."""
        mean = self.mean.detach()
        bias = mean[:, self.num_features :].sum(-1)
        return mean[:, : self.num_features], bias

    @classmethod
    def from_linear(
        cls, layer: nn.Linear, cached: Cached, *, num_data: float, **options: Any
    ) -> DiscriminativeClassification:
        """A head to replace a trained linear layer, initialised at its weights and bias.

        Without a prior, the bias has a variance no larger than the features give the logits: it
        should not explain a few labels before they do. Covariances are diagonal if there are more
        than 4,096 weights, unless told: the prior is then chosen for these too.
        """
        options = {"bias": layer.bias is not None, **options}
        num_outputs = max(layer.out_features, cls.min_outputs)
        if num_outputs * (layer.in_features + options["bias"]) > MAX_DENSE_WEIGHTS:
            options = {"covariance": "diagonal"} | options
        if options.get("prior") is None:
            prior, features = cls.default_prior(layer.in_features), cached[0]
            dtype = torch.promote_types(features.dtype, torch.float32)
            square = torch.linalg.vector_norm(features, dtype=dtype).double().square()
            of_logits = prior.fixed_variance * float(summed(square)) / num_data
            bias_variance = min(1.0, max(MIN_BIAS_VARIANCE, of_logits))
            options["prior"] = replace(prior, bias_variance=bias_variance)
        return super().from_linear(layer, cached, num_data=num_data, **options)

    def reset_parameters(self) -> None:
        """Initialise, the label noise at the mode of its prior but no more than one."""
        super().reset_parameters()
        if self.noise is not None:
            exponent = inverse_wishart_exponent(self.prior.noise_dof, self.num_outputs)
            mode = self.prior.noise_scale / max(exponent, 1.0)
            self.noise.set_isotropic(min(mode, 1.0))

    def predict(self, features: Tensor) -> DiscriminativePredictive:
        """The distribution of the logits and, from it, of the label."""
        mean = at_least_float32(F.linear(features, self.mean))
        epistemic = at_least_float32(self.covariance.quadratic(features))
        noise = torch.zeros_like(mean)
        if self.noise is not None:
            noise = at_least_float32(self.noise.variance()).expand_as(mean)
        return DiscriminativePredictive(mean, epistemic, noise)

    def joint(self, features: Tensor) -> JointLogitPredictive:
        """One Gaussian over the logits of several points (*batch, q, num_features) together."""
        mean, factor = self._joint_moments(features)
        scale = mean.new_zeros(self.num_outputs)
        if self.noise is not None:
            scale = at_least_float32(self.noise.variance()).sqrt()
        return JointLogitPredictive(mean, factor, scale.expand(*mean.shape[:-2], -1))

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Bound on the expected log-softmax (theorem 2 or tilted), (*batch,), KL and log p(Σ)."""
        batch_shape = features.shape[:-1]
        target = check_labels(target, batch_shape)
        if weight is not None:
            weight = check_weight(weight, batch_shape, None).to(self.mean.dtype)
            target = target.where(weight != 0, 0)  # ignored, whatever it is
        mean = at_least_float32(F.linear(features, self.mean))
        variance, trace, logdet = self.covariance.quadratic_terms(features)
        log_prior = mean.new_zeros(())
        if self.noise is not None:
            variance = variance + self.noise.variance()
            log_prior = self.noise.log_prior(self.prior)
        terms = BOUNDS[self.bound](mean, variance, target)
        if weight is not None:
            terms = terms * weight
        return terms, self._divergence(self._deviation(), trace, logdet), log_prior

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        return f"{super().extra_repr()}, bound={self.bound!r}"

    def sample_function(self, generator: torch.Generator | None = None) -> nn.Linear:
        """One draw of the weights, as a linear layer from features to logits."""
        noise = self.covariance.sample(1, generator).squeeze(0)
        return as_linear(at_least_float32(self.mean) + noise, self)

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
        r"""Minimise the loss in a few passes over fixed features, from where the head is.

        Every pass tells the gradient by the mean and its curvature, and what the optimum asks of
        the covariance and the label noise, given the slopes $c_{tk}/2$ of the bound by the logits'
        variance: $S_k^{-1} = I/s + \sum_t c_{tk}\phi_t\phi_t^\top/\lambda$, projected on the
        family of the covariance. All three move together, the mean by a Newton step, as far as
        the loss falls: it never rises, whatever the data.

        Where matrices of $N\times N$ per class exceed `max_memory_bytes`, L-BFGS on the
        parameters takes over for a covariance that would need them.
        """
        self._check_assignable()
        told = (lambda loss: None) if report is None else report
        solve(self, features, target, weight, max_passes, tolerance, max_memory_bytes, told)
