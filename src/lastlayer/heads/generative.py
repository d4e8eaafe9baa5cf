"""Generative classification: Gaussian class densities in feature space (paper, section 2.3)."""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._checks import (
    check_choice,
    check_count,
    check_features,
    check_finite,
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
    conjugate,
    full_precision,
    generative_bound,
    widest,
)
from ..functional.conjugate import ClassStatistics
from ..noise import NOISES, Noise
from ..predictive import GenerativePredictive
from ..priors import Prior
from ._conjugate import ConjugateHead


class GenerativeClassification(ConjugateHead):
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
    `fit_exact` and `update` count the labels they see: they need no `observe`.

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
    """

    concentration: Tensor

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
        check_count("num_classes", num_classes, 2, "a yes/no question has two classes")
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
        self.reset_parameters()

    def __setattr__(self, name: str, value: Any) -> None:
        """Edited counts may be whole numbers, and become floating point to be counted on."""
        if name == "concentration" and isinstance(value, Tensor) and not value.is_floating_point():
            value = value.float()
        super().__setattr__(name, value)

    @property
    def density_prior(self) -> Prior:
        """The prior of the densities of features: the head's own."""
        return self.prior

    def reset_parameters(self) -> None:
        """Start anew, with unit noise and no class observed."""
        super().reset_parameters()
        self.noise.set_isotropic(1.0)
        self.concentration.fill_(self.prior_concentration)

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
        target = check_labels(target, target.shape)
        counts = torch.zeros_like(self.concentration)
        if weight is None:
            weight = torch.ones(target.shape, device=target.device)
        weight = check_weight(weight, target.shape, None).to(counts)
        check_weights(weight)
        target = target.where(weight != 0, 0)
        check_range(target, self.num_outputs)
        self.concentration.add_(counts.index_add(0, target.flatten(), weight.flatten()))

    # ------------------------------------------------------------------------- two calls

    def predict(self, features: Tensor) -> GenerativePredictive:
        """The joint density of features and label, and from it the label's probabilities."""
        with full_precision(features):
            # in double precision, where classes far apart do not drown those close together
            features, mean, scale = (
                widest(tensor)
                for tensor in (
                    self.noise.to_basis(features),
                    self.noise.to_basis(self.mean),
                    self.noise.basis_log_precision_scale(),
                )
            )
            marginal, scaled_trace, *_ = self.covariance.marginal_terms(
                features, mean, (-2 * scale).exp()
            )
            expected = class_log_densities(features, mean, scale) - 0.5 * scaled_trace
        alpha = self.concentration
        log_class = alpha.log() - alpha.sum().log()
        expected_log_class = alpha.digamma() - alpha.sum().digamma()
        volume = self.noise.basis_log_volume()  # densities in the features' own units
        joint = (marginal + (log_class + volume), expected + (expected_log_class + volume))
        if marginal.dtype != log_class.dtype:
            joint = (joint[0].to(log_class.dtype), joint[1].to(log_class.dtype))
        return GenerativePredictive(*joint)

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
            kl = self._divergence(mean, trace, logdet)
        if weight is not None:
            terms = terms * weight
        return terms, kl, self.noise.log_prior(self.prior)

    @torch.no_grad()
    def sample_function(self, generator: torch.Generator | None = None) -> ClassDensities:
        """One draw of class means and probabilities, as a module from features to log p(φ, y)."""
        mean = self.noise.to_basis(self.mean)
        mean = mean + self.covariance.sample(1, generator).squeeze(0).to(mean.dtype)
        gamma = torch._standard_gamma(self.concentration, generator=generator)  # Dirichlet
        return ClassDensities(self.noise, mean, (gamma / gamma.sum()).log())

    # --------------------------------------------------------------------- exact inference

    def _statistics(
        self, features: Tensor, target: Tensor, weight: Tensor | None, reference: Tensor | None
    ) -> ClassStatistics:
        batch_shape = features.shape[:-1]
        flat = self._inputs(features).double().reshape(-1, self.width)
        target = check_labels(target, batch_shape).flatten()
        check_finite("features", flat)
        weights = flat.new_ones(len(flat))
        if weight is not None:
            weights = check_weight(weight, batch_shape, None).double().flatten()
            check_weights(weights)
            target = target.where(weights != 0, 0)  # ignored, whatever it is
        check_range(target, self.num_outputs)
        return conjugate.class_statistics(flat, target, weights, self.num_outputs)

    def _information(self, data: ClassStatistics) -> tuple[Tensor, Tensor]:
        """T_kΣ⁻¹/λ and Σ⁻¹Σ_tφ_t/λ, in the basis in which Σ is diagonal, (K, N) each."""
        scale = (2 * self.noise.basis_log_precision_scale()).exp() / self.prior.kl_weight
        return data.counts[:, None] * scale, scale * self.noise.to_basis(data.total)

    def _present(self) -> tuple[Tensor, Tensor]:
        precision = self.covariance.diagonal().reciprocal()
        if self.fresh:  # neither trained nor fitted: no data, and not the prior
            return torch.zeros_like(precision), torch.zeros_like(precision)
        return precision - 1 / self.prior.variance, precision * self.noise.to_basis(self.mean)

    def _set_posterior(self, information: Tensor, shift: Tensor) -> None:
        precision = 1 / self.prior.variance + information
        self.covariance.project_diagonal(precision)
        self.mean.copy_(self.noise.from_basis(shift / precision))

    def _check_update(self, data: ClassStatistics) -> None:
        if not self.covariance.axis_aligned:
            raise TypeError(
                "the exact posterior of the class means has diagonal covariances, which "
                f"{type(self.covariance).__name__} does not keep apart; use covariance='diagonal', "
                "or call fit_exact on all the data"
            )

    def _count(self, data: ClassStatistics, forgetting: float) -> None:
        """The exact Dirichlet posterior; what is counted here needs no `observe`."""
        counted = forgetting * (self.concentration - self.prior_concentration) + data.counts
        self.concentration.copy_(self.prior_concentration + counted)

    def _optimal_scatter(self, data: ClassStatistics) -> tuple[Tensor, Tensor]:
        """Within classes and what the posterior adds, (N, N); the number of examples, ()."""
        scatter = conjugate.class_scatter(data, self.mean)
        if self.whitened:  # through the prior of the means, whose covariance has Σ, as S_k has
            weight = self.prior.kl_weight / self.prior.variance
            return scatter + weight * self.mean.mT @ self.mean, data.counts.sum()
        spread = (data.counts[:, None] * self.covariance.diagonal()).sum(0)
        return scatter + spread.diag_embed(), data.counts.sum()


class ClassDensities(nn.Module):
    """Gaussian class densities with known means: a draw from a generative head's posterior."""

    mean: Tensor
    log_class: Tensor

    def __init__(self, noise: Noise, mean: Tensor, log_class: Tensor) -> None:
        super().__init__()
        self.noise = copy.deepcopy(noise).requires_grad_(False)
        self.register_buffer("mean", mean)  # in the noise's basis
        self.register_buffer("log_class", log_class)

    def forward(self, features: Tensor) -> Tensor:
        """log p(φ, y = k), (*batch, K)."""
        check_features(features, self.noise.size, self.noise.log_precision_scale)
        scale = self.noise.basis_log_precision_scale()
        density = class_log_densities(self.noise.to_basis(features), self.mean, scale)
        return density + (self.log_class + self.noise.basis_log_volume())
