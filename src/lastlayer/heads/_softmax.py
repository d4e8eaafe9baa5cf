"""What heads share whose logits are linear in the features, with Gaussian weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, TypeVar

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

MAX_DENSE_WEIGHTS = 4096  # of all classes: a layer with more gets diagonal covariances
MIN_BIAS_VARIANCE = 1e-6  # of the prior, where features are all but zero
AnySoftmaxHead = TypeVar("AnySoftmaxHead", bound="SoftmaxHead")


class SoftmaxHead(Head):
    r"""A head whose classes have the probabilities $\mathrm{softmax}(W\phi+\varepsilon)$.

    Attributes:
        bound: on the expected log-softmax, "tilted" or "jensen".
        noise: σ_k² of the logits, or None.
    """

    takes_classes = True
    refits_layer = True

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        num_data: float,
        covariance: CovarianceLike,
        bound: Literal["jensen", "tilted"],
        noise: Literal["diagonal", "none"],
        prior: Prior | None,
        bias: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
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
        cls: type[AnySoftmaxHead],
        layer: nn.Linear,
        cached: Cached,
        *,
        num_data: float,
        **options: Any,
    ) -> AnySoftmaxHead:
        """A head to replace a trained linear layer, initialised at its weights and bias.

        Without a prior, the bias has a variance no larger than the features give the logits: it
        should not explain a few labels before they do. Covariances are diagonal if there are more
        than 4,096 weights, unless told: the prior is then chosen for these too.
        """
        options = {"bias": layer.bias is not None, **options}
        num_outputs = max(layer.out_features, 2)
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
        """Initialise, the noise of the logits at the mode of its prior but no more than one."""
        super().reset_parameters()
        if self.noise is not None:
            exponent = inverse_wishart_exponent(self.prior.noise_dof, self.num_outputs)
            mode = self.prior.noise_scale / max(exponent, 1.0)
            self.noise.set_isotropic(min(mode, 1.0))

    def _logits(self, features: Tensor) -> DiscriminativePredictive:
        """The distribution of the logits of prepared features."""
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

    def _labels(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Checked labels and weights, (*batch,); labels that are ignored are zero."""
        target = check_labels(target, features.shape[:-1])
        if weight is None:
            return target, None
        weight = check_weight(weight, features.shape[:-1], None).to(self.mean.dtype)
        return target.where(weight != 0, 0), weight

    def _label_terms(self, features: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The bound on E log softmax of each label, (*batch,), the KL of W and log p(Σ)."""
        mean = at_least_float32(F.linear(features, self.mean))
        variance, trace, logdet = self.covariance.quadratic_terms(features)
        log_prior = mean.new_zeros(())
        if self.noise is not None:
            variance = variance + self.noise.variance()
            log_prior = self.noise.log_prior(self.prior)
        terms = BOUNDS[self.bound](mean, variance, target)
        return terms, self._divergence(self._deviation(), trace, logdet), log_prior

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        return f"{super().extra_repr()}, bound={self.bound!r}"

    def sample_function(self, generator: torch.Generator | None = None) -> nn.Linear:
        """One draw of the weights, as a linear layer from features to logits."""
        noise = self.covariance.sample(1, generator).squeeze(0)
        return as_linear(at_least_float32(self.mean) + noise, self)
