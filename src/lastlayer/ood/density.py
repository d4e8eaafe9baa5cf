"""Densities of features, class by class (paper, appendix B)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .._data import Data
from ..functional import at_least_float32, inverse_wishart_exponent
from ..network import Network
from ..priors import Prior
from ._base import fit_first
from .gaussians import Gaussians, map_mean, outer
from .statistics import ClassStatistics


class _Densities(NamedTuple):
    """Quantities for scoring, derived from the statistics once."""

    log_class: Tensor  # log p(y), (K,)
    classes: Gaussians
    prior: Gaussians  # one, what a new class would look like


class FeatureDensity(ClassStatistics):
    r"""Gaussian densities of the features of each class, a score for any backbone and head.

    Per-class MAP estimates after training (paper, appendix B), from counts T_y, means and
    scatters that are gathered in one pass. With Σ the MAP covariance within classes pooled over
    them, the inverse-Wishart(ν, M = mI) prior of noise and the prior N(0, sI) of class means,

    $$\hat\mu_y = (I/s + T_y\Sigma^{-1})^{-1}\,\Sigma^{-1}\textstyle\sum_t\phi_t,\quad
      \hat\Sigma_y = \frac{M + \sum_t(\phi_t-\hat\mu_y)(\phi_t-\hat\mu_y)^\top}{T_y+\nu+N+1}$$

    and the score is $\log p_0(\phi) - \log\sum_y p(\phi|y)\,T_y/T$. A class without examples has
    no part in it. $p_0 = N(0, sI + \Sigma)$ is the prior density of the features of a class yet
    unknown; not normalised, $p_0 = 1$.

    The plain density always falls away from all classes. Normalised, the score comes down again
    in directions in which a class is wider than p_0: keep s above the variances within classes.

    Priors are in the units of the features: with features far from unit scale, pass a `Prior`
    whose variance exceeds their mean square and whose noise_scale is below their variance, or
    standardise them. Statistics are kept in float64, also when the module is cast.

    Args:
        num_features: N.
        num_classes: K; one class needs no labels.
        covariance: of each class, "diagonal" (as the paper) or "dense", with K·N² numbers.
        prior: of class means and noise.
        normalized: whether the score is relative to the prior density; may be changed any time.
        device: of the statistics.

    Attributes:
        counts: T_y, (K,), a buffer, as are the next two.
        mean: mean of the features of each class, (K, N).
        scatter: Σ_t(φ_t − φ̄_y)², (K, N), or Σ_t(φ_t − φ̄_y)(φ_t − φ̄_y)ᵀ, (K, N, N).
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        covariance: Literal["diagonal", "dense"] = "diagonal",
        prior: Prior | None = None,
        normalized: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(num_features, num_classes, covariance=covariance, device=device)
        self.prior = Prior() if prior is None else prior
        self.normalized = normalized
        self._exponent = inverse_wishart_exponent(self.prior.noise_dof, num_features)
        if self._exponent <= 0:
            raise ValueError(
                f"prior.noise_dof + num_features + 1 must be above zero, got {self._exponent}; "
                "raise noise_dof"
            )
        self._densities: _Densities | None = None

    @classmethod
    def from_model(
        cls,
        model: Callable[[Any], Any],
        data: Data,
        *,
        num_classes: int | None = None,
        covariance: Literal["diagonal", "dense"] = "diagonal",
        prior: Prior | None = None,
        normalized: bool = True,
        batch_size: int = 1024,
        progress: bool | None = None,
    ) -> FeatureDensity:
        """Fit to the features of a model in one pass over its training data.

        Args:
            model: a `Network`, of which the backbone is used, or any callable from inputs to
                features. Variational features are drawn once per example.
            data: inputs and labels, and weights if any; no labels are needed for one class.
            num_classes: None is that of the network's head, and one for regression.
            covariance: "diagonal" or "dense".
            prior: None is that of a generative head, else `Prior()`.
            normalized: whether the score is relative to the prior density.
            batch_size: of tensors and Datasets.
            progress: whether to show a progress bar; None for where there is a terminal.

        Returns:
            The fitted density. Score with it by `ood.scores(network.backbone, data, density)`.
        """
        if isinstance(model, Network):
            head, model = model.head, model.backbone
            num_classes = head.num_densities if num_classes is None else num_classes
            prior = head.density_prior if prior is None else prior
        if num_classes is None:
            raise ValueError("num_classes is not known without a head; pass it, or 1 for no labels")
        classes = num_classes

        def make(features: Tensor) -> FeatureDensity:
            return cls(
                features.shape[-1],
                classes,
                covariance=covariance,
                prior=prior,
                normalized=normalized,
                device=features.device,
            )

        return fit_first(make, model, data, batch_size, progress)

    # ---------------------------------------------------------------------------- scoring

    def forward(self, features: Tensor) -> Tensor:
        """The score of features (*batch, N), normalised as set, (*batch,)."""
        wide = self._wide(features)
        score = -self._log_density(wide)
        if self.normalized:
            score = score + self._derived().prior.log_densities(wide).squeeze(-1)
        return score.to(at_least_float32(features).dtype)

    def log_density(self, features: Tensor) -> Tensor:
        """log Σ_y p(φ | y) p(y), not normalised, (*batch,)."""
        return self._log_density(self._wide(features)).to(at_least_float32(features).dtype)

    def _log_density(self, wide: Tensor) -> Tensor:
        derived = self._derived()
        return (derived.classes.log_densities(wide) + derived.log_class).logsumexp(-1)

    def gaussians(self) -> Gaussians:
        """The Gaussian densities of the features of each class."""
        return self._derived().classes

    @torch.no_grad()
    def _derived(self) -> _Densities:
        if self._densities is not None:
            return self._densities
        total = self.counts.sum(0, keepdim=True)
        if not bool(total > 0):
            raise RuntimeError("this density has seen no examples; call update or from_model first")
        prior, ones = self.prior, self.mean.new_ones(self.num_features)
        identity = ones.diag() if self.dense else ones

        def covariance(scatter: Tensor, counts: Tensor) -> Tensor:
            denominator = (counts + self._exponent).reshape(-1, *[1] * (scatter.ndim - 1))
            return (prior.noise_scale * identity + scatter) / denominator

        pooled = covariance(self.scatter.sum(0, keepdim=True), total)  # Σ, (1, …)
        mean = map_mean(self.mean, self.counts, pooled[0], prior.fixed_variance)
        scatter = self.scatter + outer(self.mean - mean, self.counts, self.dense)
        self._densities = _Densities(
            (self.counts / total).log(),
            Gaussians.of(mean, covariance(scatter, self.counts)),
            Gaussians.of(torch.zeros_like(mean[:1]), pooled + prior.fixed_variance * identity),
        )
        return self._densities

    def _forget(self) -> None:
        self._densities = None

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        return (
            f"num_features={self.num_features}, num_classes={self.num_classes}, "
            f"covariance={self.covariance!r}, "
            f"normalized={self.normalized}, prior={self.prior}"
        )
