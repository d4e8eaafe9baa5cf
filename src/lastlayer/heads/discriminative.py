"""Discriminative classification: a Bayesian softmax layer (paper, section 2.2)."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._checks import check_choice, check_count, check_labels, check_weight
from ..covariances import CovarianceLike
from ..functional import at_least_float32, gaussian_kl, jensen_bound, tilted_bound
from ..noise import DiagonalNoise
from ..predictive import DiscriminativePredictive
from ..priors import Prior
from ._base import Head, as_linear, squared_sum

BOUNDS = {"jensen": jensen_bound, "tilted": tilted_bound}


class DiscriminativeClassification(Head):
    r"""Bayesian logistic regression on features, $y \sim \mathrm{softmax}(W\phi+\varepsilon)$.

    The posterior of the weights is Gaussian, $q(w_k) = N(\bar w_k, S_k)$; the logits are
    independent, $z_k \sim N(\bar w_k^\top\phi,\ \phi^\top S_k\phi + \sigma_k^2)$.

    Args:
        num_features: N, the width of the features.
        num_classes: K.
        num_data: T, the number of training examples.
        covariance: of the weights of each class.
        bound: on the expected log-softmax, "jensen" (the paper) or "tilted" (tighter).
        noise: label noise σ_k², "diagonal" (learned, the paper) or "none".
        prior: of weights and noise.
        bias: whether to append a constant feature, so that the bias is Bayesian too.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        num_data: float,
        covariance: CovarianceLike = "dense",
        bound: Literal["jensen", "tilted"] = "jensen",
        noise: Literal["diagonal", "none"] = "diagonal",
        prior: Prior | None = None,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_count("num_classes", num_classes, 2, "a yes/no question has two classes")
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

    def reset_parameters(self) -> None:
        """Start anew, the label noise at the mode of its prior but no more than one."""
        super().reset_parameters()
        if self.noise is not None:
            mode = self.prior.noise_scale / max(self.prior.noise_dof + self.num_outputs + 1, 1.0)
            self.noise.reset_parameters(min(mode, 1.0))

    def predict(self, features: Tensor) -> DiscriminativePredictive:
        """The distribution of the logits and, from it, of the label."""
        mean, epistemic = self._logits(features)
        noise = torch.zeros_like(mean)
        if self.noise is not None:
            noise = at_least_float32(self.noise.variance()).expand_as(mean)
        return DiscriminativePredictive(mean, epistemic, noise)

    def bound_terms(self, features: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """Bound on the expected log-softmax (theorem 2 or tilted), (*batch,)."""
        batch_shape = features.shape[:-1]
        target = check_labels(target, batch_shape)
        mean, variance = self._logits(features)
        if self.noise is not None:
            variance = variance + self.noise.variance()
        terms = BOUNDS[self.bound](mean, variance, target)
        return terms if weight is None else terms * check_weight(weight, batch_shape, None)

    def kl(self) -> Tensor:
        """Divergence of q(W) from N(0, s I), ()."""
        trace, logdet = self.covariance.trace(), self.covariance.logdet()
        return gaussian_kl(squared_sum(self.mean), trace, logdet, self.width, self.prior.variance)

    def log_prior(self) -> Tensor:
        """Unnormalised inverse-Wishart log-density of the label noise, ()."""
        return self.mean.new_zeros(()) if self.noise is None else self.noise.log_prior(self.prior)

    def sample_function(self, generator: torch.Generator | None = None) -> nn.Linear:
        """One draw of the weights, as a linear layer from features to logits."""
        noise = self.covariance.sample(1, generator).squeeze(0)
        return as_linear(at_least_float32(self.mean) + noise, self)

    def _logits(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean of the logits and their variance due to the weights, (*batch, K) each."""
        mean = at_least_float32(F.linear(features, self.mean))
        return mean, at_least_float32(self.covariance.quadratic(features))
