"""The exact posterior of Gaussian class densities, and its recursive update."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._checks import check_finite, check_labels, check_range, check_weight, check_weights
from ..functional import conjugate
from ..functional.conjugate import ClassStatistics
from ._conjugate import ConjugateHead

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
    """

    concentration: Tensor
    observed: Tensor
    prior_concentration: float
    whitened: bool

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

    def _expect(self, state: Any, prefix: str) -> None:
        super()._expect(state, prefix)
        if prefix + "concentration" in state:
            observed = state[prefix + "concentration"] > self.prior_concentration
            state.setdefault(prefix + "observed", observed)

    def _optimal_scatter(self, data: ClassStatistics) -> tuple[Tensor, Tensor]:
        """Within classes and what the posterior adds, (N, N); the number of examples, ()."""
        scatter = conjugate.class_scatter(data, self.mean)
        if self.whitened:  # through the prior of the means, whose covariance has Σ, as S_k has
            weight = self.prior.kl_weight / self._prior_by_feature()
            deviation = self._deviation()
            return scatter + (weight * deviation).mT @ deviation, data.counts.sum()
        spread = (data.counts[:, None] * self.covariance.diagonal()).sum(0)
        return scatter + spread.diag_embed(), data.counts.sum()
