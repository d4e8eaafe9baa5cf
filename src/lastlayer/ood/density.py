"""Densities of features, class by class (paper, appendix B)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from .._data import Data
from ..functional import at_least_float32, inverse_wishart_exponent
from ..functional.shared_gaussians import SharedGaussians
from ..network import Network
from ..priors import Prior
from ._base import fit_first, power_for
from .gaussians import ClassGaussians, Gaussians, as_gaussians
from .statistics import ClassStatistics


class FeatureDensity(ClassStatistics):
    r"""Gaussian densities of the features of each class, a score for any backbone and head.

    From counts T_y, means and scatters that are gathered in one pass. The score is
    $\log p_0(\phi) - \log\sum_y p(\phi|y)\,T_y/T$, with p_0 the density of features of a class
    yet unknown; not normalised, $p_0 = 1$. A class without examples has no part in it.

    **"shared"**: $\phi|y \sim N(\mu_y, \Sigma)$ with one covariance and the conjugate priors
    $\mu_y \sim N(m, \kappa\Sigma)$, $\Sigma \sim$ inverse-Wishart(ν, ctI). The data choose all of
    κ, ν and t by the evidence, so that Σ is shrunk as much as there are few examples:

    $$\hat\Sigma = \frac{ctI + S}{c + T - K},\quad
      p(\phi|y) = N\bigl(\hat\mu_y, (1 + \tfrac1{T_y+1/\kappa})\hat\Sigma\bigr),\quad
      p_0(\phi) = \max_{\kappa'\ge\kappa} N\bigl(m, (1+\kappa')\hat\Sigma\bigr)$$

    A class yet unknown is at least as far away as the known ones are from each other. One class
    has no such distance, and its score is not normalised.

    **"diagonal"** and **"dense"**: covariances of each class, with the priors that are given
    (paper, appendix B): with Σ the MAP covariance within classes pooled over them, the
    inverse-Wishart(ν, M = mI) prior of noise and the prior N(0, sI) of class means,

    $$\hat\mu_y = (I/s + T_y\Sigma^{-1})^{-1}\,\Sigma^{-1}\textstyle\sum_t\phi_t,\quad
      \hat\Sigma_y = \frac{M + \sum_t(\phi_t-\hat\mu_y)(\phi_t-\hat\mu_y)^\top}{T_y+\nu+N+1},\quad
      p_0 = N(0, sI + \Sigma)$$

    Their priors are in the units of the features: where class means are far smaller than √s, p_0
    is flat and normalises nothing. `Prior(variance="evidence")` takes the s that makes the class
    means likeliest. Normalised, the score comes down again in directions in which a class is wider
    than p_0: a given s should be above the variances within classes.

    Args:
        num_features: N.
        num_classes: K; one class needs no labels.
        covariance: "shared", or of each class "diagonal" (as the paper) or "dense", with K·N²
            numbers.
        prior: of class means and noise, of "diagonal" and "dense" alone; None is the paper's.
        normalized: whether the score is relative to p_0; may be changed any time.
        unit_length: whether features are scaled to length one; the paper's are not.
        power: of features, keeping their signs, before that; `from_model` chooses it.
        device: of the statistics.

    Attributes:
        counts: T_y, (K,), a buffer, as are the next two.
        mean: mean of the features of each class, (K, N).
        scatter: Σ_t(φ_t − φ̄_y)(φ_t − φ̄_y)ᵀ, (N, N) if shared and (K, N, N) if dense, or its
            diagonals, (K, N).
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        covariance: Literal["shared", "diagonal", "dense"] = "shared",
        prior: Prior | None = None,
        normalized: bool = True,
        unit_length: bool = True,
        power: float = 1.0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(
            num_features,
            num_classes,
            covariance=covariance,
            unit_length=unit_length,
            power=power,
            device=device,
        )
        if covariance == "shared" and prior is not None:
            raise ValueError(
                "a shared covariance takes its prior from the data; leave prior out, or choose "
                "covariance='dense' or 'diagonal'"
            )
        self.prior = Prior() if prior is None else prior
        self.normalized = normalized
        exponent = inverse_wishart_exponent(self.prior.noise_dof, num_features)
        if exponent <= 0:
            raise ValueError(
                f"prior.noise_dof + num_features + 1 must be above zero, got {exponent}; "
                "raise noise_dof"
            )
        self._densities: ClassGaussians | SharedGaussians | None = None

    @classmethod
    def from_model(
        cls,
        model: Callable[[Any], Any],
        data: Data,
        *,
        num_classes: int | None = None,
        covariance: Literal["shared", "diagonal", "dense"] = "shared",
        prior: Prior | None = None,
        normalized: bool = True,
        unit_length: bool = True,
        power: float | None = None,
        batch_size: int = 1024,
        distributed: bool = False,
        progress: bool | None = None,
    ) -> FeatureDensity:
        """Fit to the features of a model in one pass over its training data.

        Args:
            model: a `Network`, of which the backbone is used, or any callable from inputs to
                features. Variational features are drawn once per example.
            data: inputs and labels, and weights if any; no labels are needed for one class.
            num_classes: None is that of the network's head, and one for regression.
            covariance: as of the class, as are the next three.
            prior: None is that of a generative head, else `Prior()`.
            normalized: whether the score is relative to the prior density.
            unit_length: whether features are scaled to length one.
            power: of features; None is ½ if no feature of the first batch is negative, else 1.
            batch_size: of tensors and Datasets.
            distributed: whether all processes of `torch.distributed` fit it together: each reads
                its part, every so many rows of tensors and Datasets or what its own DataLoader
                yields, and all end with the density of all the data.
            progress: whether to show a progress bar; None for where there is a terminal.

        Returns:
            The fitted density. Score with it by `ood.scores(network.backbone, data, density)`.
        """
        if isinstance(model, Network):
            head, model = model.head, model.backbone
            num_classes = head.num_densities if num_classes is None else num_classes
            prior = head.density_prior if prior is None and covariance != "shared" else prior
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
                unit_length=unit_length,
                power=power_for(features) if power is None else power,
                device=features.device,
            )

        return fit_first(make, model, data, batch_size, distributed, progress)

    def forward(self, features: Tensor) -> Tensor:
        """The score of features (*batch, N), normalised as set, (*batch,)."""
        points, derived = self._points(features), self._derived()
        score = -derived.log_density(points)
        if self.normalized:
            score = score + derived.log_prior(points)
        return score.to(at_least_float32(features).dtype)

    def log_density(self, features: Tensor) -> Tensor:
        """log Σ_y p(φ | y) p(y), not normalised, of features in the form that is scored."""
        density = self._derived().log_density(self._points(features))
        return density.to(at_least_float32(features).dtype)

    def gaussians(self) -> Gaussians:
        """The Gaussian densities of the features of each class."""
        derived = self._derived()
        return derived.gaussians() if isinstance(derived, ClassGaussians) else as_gaussians(derived)

    @torch.no_grad()
    def _derived(self) -> ClassGaussians | SharedGaussians:
        if self._densities is None:
            if not bool(self.counts.sum() > 0):
                raise RuntimeError(
                    "this density has seen no examples; call update or from_model first"
                )
            statistics = (self.counts, self.mean, self.scatter)
            shared = self.covariance == "shared"
            self._densities = (
                SharedGaussians.of(*statistics)
                if shared
                else ClassGaussians.of(*statistics, self.prior)
            )
        return self._densities

    def _forget(self) -> None:
        self._densities = None

    def options(self) -> dict[str, Any]:
        """Arguments that make a density like this one, which has seen nothing."""
        prior = {} if self.covariance == "shared" else {"prior": self.prior}
        options = {"covariance": self.covariance, "normalized": self.normalized}
        return super().options() | options | prior

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        prior = "" if self.covariance == "shared" else f", prior={self.prior}"
        return f"{super().extra_repr()}, normalized={self.normalized}{prior}"
