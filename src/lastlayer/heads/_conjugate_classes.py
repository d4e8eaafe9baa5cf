"""The exact posterior of Gaussian class densities, and its recursive update."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from .._checks import check_finite, check_labels, check_range, check_weight, check_weights
from ..functional import conjugate
from ..functional.conjugate import ClassStatistics
from ..functional.shared_gaussians import on_sphere
from ._conjugate import ConjugateHead, chunks
from ._discriminant import Labelled, num_rows, shrink_noise
from ._linear import Cached, layer_loss
from ._relative_density import RelativeDensity

MAX_DENSITY_WIDTH = 4096  # features up to which `fit_features` fits a density
MIN_COUNT = 1e-3  # examples of a class, discounted by forgetting, below which there are none


class ConjugateClasses(ConjugateHead):
    """Exact inference for Gaussian class densities with one noise covariance.

    The natural parameters are T_kΣ⁻¹/λ and Σ⁻¹Σ_t(φ_t − m_k)/λ, with the prior's mean m_k, in the
    basis in which Σ is diagonal.

    Attributes:
        concentration: α, (K,), a buffer: prior plus observed counts.
        observed: a buffer, whether there were examples of a class, (K,).
        prior_concentration: α̲ of the symmetric Dirichlet prior over classes.
        whitened: whether that basis is the whitened one.
        replaced: weights and bias of the trained layer that the head replaces, if it is known;
            not saved.
    """

    takes_validation: ClassVar[bool] = True
    concentration: Tensor
    observed: Tensor
    prior_concentration: float
    whitened: bool
    replaced: tuple[Tensor, Tensor | None] | None = None
    density: RelativeDensity | None

    @torch.no_grad()
    def fit_features(
        self,
        features: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        validation: Cached | None = None,
        max_passes: int = 50,
        tolerance: float = 1e-4,
        max_memory_bytes: int = 2**31,
        report: Callable[[float], None] | None = None,
    ) -> None:
        r"""Fit to predict labels: class means by their posterior, the noise by label likelihood.

        The noise is $\tau\Sigma_\rho$: the covariance within classes, shrunk towards a multiple of
        the identity, $\Sigma_\rho = (1-\rho)\hat\Sigma + \rho\,\mathrm{tr}\hat\Sigma/N\,I$, at a
        temperature τ, $N(\phi|\mu,\tau\Sigma) \propto N(\phi|\mu,\Sigma)^{1/\tau}$. Both maximise
        the likelihood of every label given all other examples, which has a closed form, or that
        of `validation`. All classes have the same S: where τ is large, differences between S_k
        would decide more than the features do. The prior of the noise has no part in it.

        Leaving one out says nothing if the features were trained on the labels. They seem to be,
        if it costs nothing: if predictions are hardly worse than in sample, and than those of the
        layer that the head replaces. Then the weights of the logits have a prior, of variance 1/N
        as in a discriminative head, or more if the features are small.

        The density of up to 4,096 features is that of `fit_density`.

        Args:
            features: of all the data, (*batch, num_features), in memory or memory-mapped.
            target: as in `forward`.
            weight: as in `forward`.
            validation: features, target and weight (or None) of data whose labels the features
                have not seen, by which to choose.
            max_passes: has no effect: there is one.
            tolerance: has no effect.
            max_memory_bytes: of the examples to choose by; a random part, if all are more.
            report: is not called.
        """
        device = self.mean.device
        self.to(features.device)
        try:
            self._fit_labels(features, target, weight, validation, max_memory_bytes)
            if self.num_features <= MAX_DENSITY_WIDTH:
                self.fit_density(features, target, weight)
        finally:
            self.to(device)

    @torch.no_grad()
    def fit_density(self, features: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        """Let `log_density` of predictives, and scores by it, tell the unfamiliar.

        It is then log p(φ) less its value under a class yet unknown, of features of length one
        (their square roots, if none is negative), with one covariance of all classes, shrunk as
        the evidence says; see `lastlayer.ood.FeatureDensity`. Probabilities of labels stay as they
        are. It stays through `update`, and is dropped by `fit_exact`, by training, and where fewer
        than two classes have examples: `log_density` is then the paper's, of the classes of the
        head itself.

        Args:
            features: of all the data, (*batch, num_features).
            target: as in `forward`.
            weight: as in `forward`.
        """
        parts = list(chunks(features, target, weight))
        power = 1.0 if any(bool((part < 0).any()) for part, *_ in parts) else 0.5
        found = functools.reduce(
            ClassStatistics.merge,
            (self._class_statistics(*self._flat(*part), power) for part in parts),
        )
        self.density = RelativeDensity.of(found, power)

    def _class_statistics(
        self, features: Tensor, target: Tensor, weight: Tensor, power: float
    ) -> ClassStatistics:
        points = on_sphere(features, power)
        return conjugate.class_statistics(points, target, weight, self.num_outputs)

    def _fit_labels(
        self,
        features: Tensor,
        target: Tensor,
        weight: Tensor | None,
        validation: Cached | None,
        max_memory_bytes: int,
    ) -> None:
        self._check_assignable()
        data = self._gather(features, target, weight)
        chosen = (features, target, weight) if validation is None else validation
        examples = self._some_rows(*chosen, max_memory_bytes)
        noise = shrink_noise(
            data,
            examples,
            held_out=validation is not None,
            correlated=self.whitened,
            concentration=self.prior_concentration,
            kl_weight=self.prior.kl_weight,
            replaced_loss=None if self.replaced is None else layer_loss(*self.replaced, *examples),
        )
        if noise is None:
            self.fit_exact(features, target, weight, estimate_noise=True)
            self.assumption = "closed form: no two examples of a class differ"
            return
        fit = self._in_double()
        fit.noise.assign(noise.covariance)
        fit._settle_variance()
        fit._set_posterior(*fit._information(data))
        fit._alternate(data, estimate_noise=False, max_iterations=200)
        precision = 1 / fit._prior_by_feature() + fit._information(data)[0]
        common = precision[data.counts > 0].mean(0)  # nearest to all, in the sense of `project`
        scale = 1.0 if self.whitened else noise.temperature  # S is in units of Σ, or not
        fit.covariance.project_diagonal((common / scale).expand_as(precision))
        fit.noise.assign(noise.temperature * noise.covariance)
        fit._count(data, forgetting=0.0)
        fit.projected.fill_(False)
        self._take(fit)
        self.assumption = noise.reason

    def _some_rows(
        self, features: Tensor, target: Tensor, weight: Tensor | None, max_memory_bytes: int
    ) -> Labelled:
        """Examples in double precision, a random part of them if all are too many."""
        leading, device = features.shape[:-1], self.mean.device
        count = num_rows(self.num_features, self.num_outputs, max_memory_bytes)
        parts = [features.flatten(0, -2), target.flatten()]
        if weight is not None:
            parts.append(check_weight(weight, leading, None).flatten())
        if count < leading.numel():
            order = torch.randperm(leading.numel(), generator=torch.Generator().manual_seed(0))
            rows = order[:count].sort().values.to(features.device)
            parts = [part[rows.to(part.device)] for part in parts]
        chosen = [part.to(device) for part in parts]
        return self._flat(chosen[0], chosen[1], chosen[2] if weight is not None else None)

    def _flat(self, features: Tensor, target: Tensor, weight: Tensor | None) -> Labelled:
        """Checked examples in double precision, one row each; weights of one if there are none."""
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
        return flat, target, weights

    def _statistics(
        self, features: Tensor, target: Tensor, weight: Tensor | None, reference: Tensor | None
    ) -> ClassStatistics:
        flat, target, weights = self._flat(features, target, weight)
        return conjugate.class_statistics(flat, target, weights, self.num_outputs)

    def _information(self, data: ClassStatistics) -> tuple[Tensor, Tensor]:
        """T_kΣ⁻¹/λ and Σ⁻¹Σ_tφ_t/λ, in the basis in which Σ is diagonal, (K, N) each."""
        scale = (2 * self.noise.basis_log_precision_scale()).exp() / self.prior.kl_weight
        counts, total = data.counts[:, None], data.total
        if self.prior_mean is not None:
            total = total - counts * self.prior_mean
        return counts * scale, scale * self.noise.to_basis(total)

    def _present(self) -> tuple[Tensor, Tensor]:
        precision = self.covariance.diagonal().reciprocal()
        if self.fresh:  # neither trained nor fitted: as initialised, which is not the prior
            return torch.zeros_like(precision), torch.zeros_like(precision)
        shift = precision * self.noise.to_basis(self._deviation())
        return precision - 1 / self._prior_by_feature(), shift

    def _set_posterior(self, information: Tensor, shift: Tensor, *others: Tensor) -> None:
        precision = 1 / self._prior_by_feature() + information
        self.covariance.project_diagonal(precision)
        mean = self.noise.from_basis(shift / precision)
        self.mean.copy_(mean if self.prior_mean is None else self.prior_mean + mean)

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
        kept = self.observed & (counted > MIN_COUNT) if forgetting < 1 else self.observed
        self.observed.copy_(kept | (data.counts > 0))
        if forgetting == 0:
            self.density = None

    def _expect(self, state: Any, prefix: str) -> None:
        super()._expect(state, prefix)
        if prefix + "concentration" in state:
            observed = state[prefix + "concentration"] > self.prior_concentration
            state.setdefault(prefix + "observed", observed)
        start = prefix + "density."
        found = {name.removeprefix(start): state[name] for name in state if name.startswith(start)}
        self.density = RelativeDensity(found).to(self.mean.device) if found else None

    def _optimal_scatter(self, data: ClassStatistics) -> tuple[Tensor, Tensor]:
        """Within classes and what the posterior adds, (N, N); the number of examples, ()."""
        scatter = conjugate.class_scatter(data, self.mean)
        if self.whitened:  # through the prior of the means, whose covariance has Σ, as S_k has
            weight = self.prior.kl_weight / self._prior_by_feature()
            deviation = self._deviation()
            return scatter + (weight * deviation).mT @ deviation, data.counts.sum()
        spread = (data.counts[:, None] * self.covariance.diagonal()).sum(0)
        return scatter + spread.diag_embed(), data.counts.sum()
