"""Generative classification: Gaussian class densities in feature space (paper, section 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._checks import (
    check_choice,
    check_count,
    check_labels,
    check_positive,
    check_range,
    check_weight,
    check_weights,
)
from ..covariances import CovarianceLike
from ..functional import (
    at_least_float32,
    class_log_densities,
    class_log_density,
    full_precision,
    generative_bound,
    widest,
)
from ..functional.densities import with_unobserved_classes
from ..noise import NOISES
from ..predictive import GenerativePredictive
from ..priors import Prior
from ._class_densities import ClassDensities
from ._conjugate_classes import ConjugateClasses
from ._linear import Cached
from ._relative_density import RelativeDensity

MAX_DENSE_WIDTH = 4096  # features up to which the noise is dense after training, unless told


class GenerativeClassification(ConjugateClasses):
    r"""Bayesian Gaussian discriminant analysis on features, $\phi\,|\,y \sim N(\mu_y, \Sigma)$.

    The posterior of the class means is Gaussian, $q(\mu_k) = N(\bar\mu_k, S_k)$, that of the
    class probabilities is the exact Dirichlet(α), and the predictive follows from Bayes' rule
    over $N(\bar\mu_k, \Sigma + S_k)$.

    All work is done in a basis in which the noise is diagonal: the features' own with diagonal
    Σ, the whitened one, $L^\top\phi$ with $\Sigma^{-1} = LL^\top$, with dense Σ. The covariances
    S_k and the prior $N(0, s I)$ of the class means are meant in that basis, so that Σ + S_k
    never needs a factorisation per class.

    `fit_exact` sets, in that basis, $S_k^{-1} = I/s + T_k\Sigma^{-1}/\lambda$ and
    $\bar\mu_k = S_k\Sigma^{-1}\sum_t\phi_t/\lambda$, and $\alpha$ to prior plus counts. This is the
    posterior of the model p(φ, y); the training loss bounds p(y | φ) instead, and may rise.
    `fit_features` has the same means, and a noise under which labels are predicted well, which is
    no density of the features: for that it calls `fit_density`. `fit_exact` has the paper's model
    alone, for labels and densities, and is for streams. `fit_exact`, `fit_features` and `update`
    count the labels they see: they need no `observe`.

    A class without examples, while others have some, is predicted with the probability of its
    prior, $\alpha_k/\sum\alpha$, whatever the features: they say nothing for or against it.

    Args:
        num_features: N, the width of the features.
        num_classes: K.
        num_data: T, the number of training examples.
        covariance: of each class mean, in the basis in which the noise is diagonal.
        noise: Σ, "diagonal" or "dense".
        concentration: α̲ of the symmetric Dirichlet prior over classes.
        prior: of class means and noise.
        device: of the parameters.
        dtype: of the parameters.

    Attributes:
        concentration: α, (K,), a buffer: prior plus observed counts, yours to edit.
        observed: a buffer, whether there were examples of a class, (K,).
        density: what `fit_density` found; None while log p(φ) is that of the classes above.
    """

    takes_classes = True
    concentration: Tensor
    observed: Tensor
    density: RelativeDensity | None

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        num_data: float,
        covariance: CovarianceLike = "diagonal",
        noise: Literal["diagonal", "dense"] = "diagonal",
        concentration: float = 1.0,
        prior: Prior | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_count("num_classes", num_classes, 2, "a binary question has two classes")
        check_choice("noise", noise, NOISES)
        check_positive("concentration", concentration)
        super().__init__(
            num_features,
            num_classes,
            num_data=num_data,
            covariance=covariance,
            prior=prior,
            bias=False,
            device=device,
            dtype=dtype,
        )
        self.prior_concentration = concentration
        self.whitened = noise == "dense"
        self.noise = NOISES[noise](num_features, device=device, dtype=dtype)
        # counts beyond 2048 are not exact in half precision, so never less than single
        wide = at_least_float32(self.mean.detach()).dtype
        alpha = torch.empty(num_classes, device=device, dtype=wide)
        self.register_buffer("concentration", alpha)
        self.register_buffer("observed", torch.empty_like(alpha, dtype=torch.bool))
        self.register_module("density", None)
        self.reset_parameters()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; counts that are integers become floating point to be added to."""
        if name == "concentration" and isinstance(value, Tensor) and not value.is_floating_point():
            value = value.float()
        super().__setattr__(name, value)

    def reset_parameters(self) -> None:
        """Initialise, with unit noise and no class observed."""
        super().reset_parameters()
        self.noise.set_isotropic(1.0)
        self.concentration.fill_(self.prior_concentration)
        self.observed.fill_(False)
        self.density = None

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move or cast the head; counts stay at least float32, half precision cannot hold them."""
        counts = self.concentration
        super()._apply(fn, recurse)
        if self.concentration.dtype in (torch.float16, torch.bfloat16):
            self.concentration = counts.to(self.concentration.device)
        return self

    @torch.no_grad()
    def observe(self, target: Tensor, weight: Tensor | None = None) -> None:
        """Count the classes of some labels, once per example: the exact Dirichlet posterior.

        Args:
            target: class indices, of any shape.
            weight: what each counts, of the same shape; a label of weight zero may be anything.
        """
        counts = self._counts(target, weight)
        self.concentration.add_(counts)
        self.observed |= counts > 0

    def _counts(self, target: Tensor, weight: Tensor | None) -> Tensor:
        """How often each class is among labels, weighted, (K,)."""
        target = check_labels(target, target.shape)
        counts = torch.zeros_like(self.concentration)
        if weight is None:
            weight = torch.ones(target.shape, device=target.device)
        weight = check_weight(weight, target.shape, None).to(counts)
        check_weights(weight)
        target = target.where(weight != 0, 0)
        check_range(target, self.num_outputs)
        return counts.index_add(0, target.flatten(), weight.flatten())

    @torch.no_grad()
    def prepare(
        self,
        data: Iterable[tuple[Tensor, Tensor | None]],
        *,
        new: bool,
        total: Callable[[Tensor], Tensor],
    ) -> None:
        """Count the labels of all the data anew."""
        counts, device = torch.zeros_like(self.concentration), self.concentration.device
        for target, weight in data:
            weight = None if weight is None else weight.to(device)
            counts += self._counts(target.to(device), weight)
        counts = total(counts)
        self.concentration.copy_(self.prior_concentration + counts)
        self.observed.copy_(counts > 0)
        self.density = None  # training will change the features

    @property
    def num_densities(self) -> int:
        """One Gaussian per class describes the features."""
        return self.num_outputs

    @property
    def density_prior(self) -> Prior:
        """The prior of the class densities."""
        if not self.learns_prior:
            return self.prior
        return replace(self.prior, variance=float(self.prior_variance[0]))

    @classmethod
    def from_linear(
        cls, layer: nn.Linear, cached: Cached, *, num_data: float, **options: Any
    ) -> GenerativeClassification:
        """A head to replace a trained linear layer, with dense noise unless N is large."""
        wide = layer.in_features > MAX_DENSE_WIDTH
        options = {"noise": "diagonal" if wide else "dense"} | options
        return super().from_linear(layer, cached, num_data=num_data, **options)

    def start_from(self, layer: nn.Linear) -> None:
        """Remember a trained layer for `fit_features`; its weights are no class means."""
        bias = None if layer.bias is None else layer.bias.detach().clone()
        self.replaced = (layer.weight.detach().clone(), bias)

    # ------------------------------------------------------------------------- two calls

    def predict(self, features: Tensor) -> GenerativePredictive:
        """The joint density of features and label, and from it the label's probabilities."""
        with full_precision(features):
            # in double precision, where classes far apart do not drown those close together
            points, mean, scale = (
                widest(tensor)
                for tensor in (
                    self.noise.to_basis(features),
                    self.noise.to_basis(self.mean),
                    self.noise.basis_log_precision_scale(),
                )
            )
            marginal, scaled_trace, *_ = self.covariance.marginal_terms(
                points, mean, (-2 * scale).exp()
            )
            expected = class_log_densities(points, mean, scale) - 0.5 * scaled_trace
        if self.whitened:  # densities in the features' own units
            volume = self.noise.basis_log_volume()
            marginal, expected = marginal + volume, expected + volume
        predictive = self._predictive(marginal, expected)
        if self.density is None:
            return predictive
        with full_precision(features):
            return predictive.with_log_density(self.density(features))

    def _predictive(
        self, log_density: Tensor, expected_log_density: Tensor
    ) -> GenerativePredictive:
        """Bayes' rule, with what is known of the class probabilities."""
        alpha, known = self.concentration, self._known()
        total, observed = alpha.sum(), alpha.where(known, 0.0).sum()
        log, expected_log = alpha.log(), alpha.digamma()
        log_odds = log - observed.log()
        joint = with_unobserved_classes(log_density + (log - total.log()), log_odds, known)
        expected = expected_log_density + (expected_log - total.digamma())
        # features say nothing of an unobserved class: only its probability is uncertain
        gap = expected_log - observed.digamma() - log_odds
        expected = torch.where(known, expected, joint + gap)
        return GenerativePredictive(joint.to(alpha.dtype), expected.to(alpha.dtype))

    def _known(self) -> Tensor:
        """Classes with examples, (K,); all of them, if there are none at all."""
        return self.observed | ~self.observed.any()

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Bound on the label's expected log-probability (theorem 3), (*batch,), KL, log p(Σ)."""
        batch_shape = features.shape[:-1]
        target = check_labels(target, batch_shape)
        if weight is not None:
            weight = check_weight(weight, batch_shape, None).to(self.mean.dtype)
            target = target.where(weight != 0, 0)  # ignored, whatever it is
        with full_precision(features):
            features, mean = self.noise.to_basis(features), self.noise.to_basis(self.mean)
            scale = self.noise.basis_log_precision_scale()
            log_density = class_log_density(features, mean, target, scale)
            marginal, scaled_trace, trace, logdet = self.covariance.marginal_terms(
                features, mean, (-2 * scale).exp()
            )
            terms = generative_bound(
                log_density, scaled_trace, marginal, self.concentration, target
            )
            kl = self._divergence(self._basis_deviation(mean), trace, logdet)
        if weight is not None:
            terms = terms * weight
        return terms, kl, self.noise.log_prior(self.prior)

    def _prior_deviation(self) -> Tensor:
        return self._basis_deviation(self.noise.to_basis(self.mean))

    def _basis_deviation(self, mean: Tensor) -> Tensor:
        """The means of classes about their prior, in the basis of the noise as they are."""
        return mean if self.prior_mean is None else mean - self.noise.to_basis(self.prior_mean)

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        return f"{super().extra_repr()}, concentration={self.prior_concentration}"

    @torch.no_grad()
    def sample_function(self, generator: torch.Generator | None = None) -> ClassDensities:
        """One draw of class means and probabilities, as a module from features to log p(φ, y)."""
        mean = self.noise.to_basis(self.mean)
        mean = mean + self.covariance.sample(1, generator).squeeze(0).to(mean.dtype)
        gamma = torch._standard_gamma(self.concentration, generator=generator)  # Dirichlet
        return ClassDensities(self.noise, mean, (gamma / gamma.sum()).log(), self._known())
