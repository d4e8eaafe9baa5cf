"""Classification whose labels are wrong more often for some inputs: two Gaussian last layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..covariances import CovarianceLike
from ..functional import at_least_float32, wrong_label_bound
from ..predictive import NoisyLabelPredictive
from ..priors import Prior
from ._noisy_label_solver import solve
from ._second_layer import SecondLayer
from ._softmax import SoftmaxHead


class LogOdds(SecondLayer):
    """The posterior q(v) = N(v̄, S') of the weights of one log-odds, with a constant feature.

    Attributes:
        level: mean of the prior of the log-odds, for all inputs.
    """

    def __init__(
        self,
        num_features: int | None,
        *,
        level: float,
        **options: Any,
    ) -> None:
        super().__init__(num_features, 1, **options)
        self.level = level
        self.prior_mean = torch.zeros_like(self.mean)

    @classmethod
    def default_prior(cls, num_features: int) -> Prior:
        """Log-odds of variance ten for features of unit mean square, about an uncertain level."""
        return Prior(variance=10 / num_features, bias_variance=4.0)

    @torch.no_grad()
    def set_to_level(self) -> None:
        """Initialise at the mean of the prior, the same level for all inputs."""
        assert self.prior_mean is not None
        self.prior_mean.zero_()[:, -1] = self.level
        self.mean.copy_(self.prior_mean)
        self._initialize_covariance(1 / self.width)


class NoisyLabelClassification(SoftmaxHead):
    r"""Bayesian logistic regression on features, with labels that are wrong in some regions.

    $$p(y) = (1 - \pi)\,\mathrm{softmax}(W\phi)_y + \frac{\pi}{K},\qquad
      \pi = \sigma(v^\top\phi')$$

    so that with the probability π, which depends on the input, a label is drawn from all classes
    alike. Both layers have Gaussian posteriors, $q(w_k) = N(\bar w_k, S_k)$ and
    $q(v) = N(\bar v, S')$; whether a label is random is integrated out under its best posterior.
    The bound is closed-form: no sampling. A label costs no more than one that is random, so that
    wrong ones hardly move the fit.

    It is initialised with next to no wrong labels, where it is `DiscriminativeClassification`
    without noise of the logits. φ' are the features, or the last `num_noise_features` of them, and
    a constant. The predictive is of labels as they are observed, and has that of `right` labels and
    the probability that a given label is wrong.

    Args:
        num_features: N, the width of the features.
        num_classes: K.
        num_data: T, the number of training examples.
        covariance: of the weights of each class.
        noise_covariance: of the weights of the log-odds.
        num_noise_features: how many of the features, the last ones, the log-odds depend on; None
            is all. The classes depend on all.
        wrong_share: the share of wrong labels that is expected before any data: the mean of the
            prior of the log-odds.
        bound: on the expected log-softmax, "tilted" or "jensen" (the paper, looser).
        prior: of weights; None is `default_prior`.
        noise_prior: of the weights of the log-odds, whose `variance` and `bias_variance` alone
            count; None is `LogOdds.default_prior`.
        bias: whether to append a constant feature for the classes, so that the bias is Bayesian
            too.
        device: of the parameters.
        dtype: of the parameters.

    Attributes:
        log_odds: the layer of the log-odds, with its own `mean`, `covariance` and `prior`.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        num_data: float,
        covariance: CovarianceLike = "dense",
        noise_covariance: CovarianceLike = "dense",
        num_noise_features: int | None = None,
        wrong_share: float = 0.01,
        bound: Literal["jensen", "tilted"] = "tilted",
        prior: Prior | None = None,
        noise_prior: Prior | None = None,
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
            noise="none",
            prior=prior,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        random = wrong_share * num_classes / (num_classes - 1)
        if not 0 < random < 1:
            raise ValueError(
                f"wrong_share must lie between 0 and (K - 1)/K, where every label is random, got "
                f"{wrong_share!r} for K={num_classes}"
            )
        self.wrong_share = wrong_share
        self.log_odds = LogOdds(
            num_noise_features,
            num_head_features=num_features,
            level=math.log(random) - math.log1p(-random),
            covariance=noise_covariance,
            prior=noise_prior,
            device=device,
            dtype=dtype,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise, with next to no wrong labels anywhere."""
        super().reset_parameters()
        self.log_odds.set_to_level()

    # ------------------------------------------------------------------------- two calls

    def predict(self, features: Tensor) -> NoisyLabelPredictive:
        """The predictive of labels as they are observed, and of right ones."""
        logits = self._logits(features)
        inputs = self.log_odds.inputs(features, self)
        return NoisyLabelPredictive(
            logits.logit_mean,
            logits.epistemic_variance,
            at_least_float32(F.linear(inputs, self.log_odds.mean)),
            at_least_float32(self.log_odds.covariance.quadratic(inputs)),
        )

    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Bound on the expected log-likelihood, (*batch,), and KL of both layers."""
        target, weight = self._labels(features, target, weight)
        terms, kl, log_prior = self._label_terms(features, target)
        inputs, layer = self.log_odds.inputs(features, self), self.log_odds
        mean = at_least_float32(F.linear(inputs, layer.mean))
        variance, *noise_terms = layer.covariance.quadratic_terms(inputs)
        terms = wrong_label_bound(terms, mean.squeeze(-1), variance.squeeze(-1), self.num_outputs)
        kl = kl + layer._divergence(layer._deviation(), *noise_terms)
        return terms if weight is None else terms * weight, kl, log_prior

    # ------------------------------------------------------------------------ how it is used

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
        r"""Minimise the loss over fixed features by alternating closed forms.

        Every pass finds the probability $r_t$ that a label is random, takes steps of
        `DiscriminativeClassification` in which an example counts $1 - r_t$ times, and a Newton step
        of the log-odds towards $r_t$: the loss never rises. A head whose log-odds are new begins
        at the fit that takes every label for right, but with half of them suspected: what is
        predicted well clears itself, while from no suspicion wrong labels would have been fitted
        before they are found. If the loss ends above that of this first fit, it begins there.
        """
        self._check_assignable()
        told = (lambda loss: None) if report is None else report
        solve(self, features, target, weight, max_passes, tolerance, max_memory_bytes, told)
