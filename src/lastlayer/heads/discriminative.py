"""Discriminative classification: a Bayesian softmax layer (paper, section 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ..covariances import CovarianceLike
from ..predictive import DiscriminativePredictive
from ..priors import Prior
from ._softmax import SoftmaxHead
from ._solver import solve


class DiscriminativeClassification(SoftmaxHead):
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
        super().__init__(
            num_features,
            num_classes,
            num_data=num_data,
            covariance=covariance,
            bound=bound,
            noise=noise,
            prior=prior,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        self.reset_parameters()

    def predict(self, features: Tensor) -> DiscriminativePredictive:
        """The distribution of the logits and, from it, of the label."""
        return self._logits(features)

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Bound on the expected log-softmax (theorem 2 or tilted), (*batch,), KL and log p(Σ)."""
        target, weight = self._labels(features, target, weight)
        terms, kl, log_prior = self._label_terms(features, target)
        return terms if weight is None else terms * weight, kl, log_prior

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
