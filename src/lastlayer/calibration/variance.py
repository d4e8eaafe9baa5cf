"""Variance scaling of regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .._checks import check_count, check_target, check_weight, check_weights
from .._data import Data
from .._streaming import labelled
from ..predictive import GaussianPredictive, MultivariateGaussianPredictive

AnyPredictive = TypeVar("AnyPredictive")


class VarianceScaling(nn.Module):
    r"""Variances times a factor c_k per output, epistemic and noise alike; the mean stays.

    The factor that minimises the Gaussian negative log-likelihood of held-out targets is closed
    for independent outputs, the mean squared standardised error,
    $c_k = \mathrm{mean}_t\,(y_{tk} - \mu_{tk})^2/v_{tk}$. For correlated outputs, with covariance
    $D^{1/2}CD^{1/2}$ and $D = \mathrm{diag}(c)$, the joint likelihood is concave in
    $u_k = c_k^{-1/2}$, and a few Newton steps find its maximum.

    A mixture is stretched about its mean, components and their means, so that its variance has
    the factor c_k and its shape stays; c_k is then the mean squared standardised error, which
    matches the variance of held-out targets but need not maximise their likelihood.

    Args:
        num_outputs: K.

    Attributes:
        variance_scale: c, (K,), a buffer.
    """

    variance_scale: Tensor

    def __init__(self, num_outputs: int = 1) -> None:
        super().__init__()
        check_count("num_outputs", num_outputs)
        self.register_buffer("variance_scale", torch.ones(num_outputs))

    def fit(
        self,
        model: Callable[[Any], Any],
        data: Data,
        *,
        batch_size: int = 1024,
        progress: bool | None = None,
    ) -> VarianceScaling:
        """Minimise the negative log-likelihood of held-out targets.

        Args:
            model: a regression that was not trained on this data.
            data: inputs and targets; targets of weight zero are ignored, even if they are NaN.
            batch_size: of tensors and Datasets.
            progress: whether to show a progress bar; None for where there is a terminal.

        Returns:
            Itself.
        """
        squares: Tensor | float = 0.0  # (K,), or (K, K) for correlated outputs
        total: Tensor | float = 0.0
        for predictive, target, weight in labelled(model, data, batch_size, progress):
            _check_regression(predictive, len(self.variance_scale))
            terms, weights = _squares(predictive.to(torch.float64), target, weight)
            squares = squares + terms
            total = total + weights
        mean = torch.as_tensor(squares / total)
        scale = mean if mean.ndim == 1 else _joint_scale(mean)
        check_errors(scale, mean)
        self.variance_scale.copy_(scale)
        return self

    def forward(self, predictive: AnyPredictive) -> AnyPredictive:
        """The predictive with scaled variances."""
        _check_regression(predictive, len(self.variance_scale))
        return _scaled(predictive, self.variance_scale)

    def extra_repr(self) -> str:
        """The number of outputs, for printing."""
        return f"num_outputs={len(self.variance_scale)}"


def check_errors(scale: Tensor, errors: Tensor) -> None:
    """Raise unless factors that follow from mean squared standardised errors are usable."""
    if not bool(((scale > 0) & scale.isfinite()).all()):
        raise ValueError(
            "every output needs held-out targets that are finite and differ from their "
            f"prediction, got mean squared standardised errors {errors.tolist()}"
        )


def _scaled(predictive: Any, variance_scale: Tensor) -> Any:
    """A regression predictive with its variances times c, (K,)."""
    scale = variance_scale.to(predictive.mean)
    if isinstance(predictive, GaussianPredictive):
        return replace(
            predictive,
            epistemic_variance=scale * predictive.epistemic_variance,
            noise_variance=scale * predictive.noise_variance,
        )
    if isinstance(predictive, MultivariateGaussianPredictive):
        outer = scale.sqrt().unsqueeze(-1) * scale.sqrt()
        return replace(
            predictive,
            epistemic_covariance=outer * predictive.epistemic_covariance,
            noise_covariance=outer * predictive.noise_covariance,
        )
    center, components = predictive.mean.unsqueeze(-2), _scaled(predictive.components, scale)
    stretched = center + scale.sqrt() * (components.mean - center)
    return replace(predictive, components=replace(components, mean=stretched))


def _check_regression(predictive: Any, num_outputs: int) -> None:
    parts = getattr(predictive, "components", predictive)  # of a mixture
    if not isinstance(parts, GaussianPredictive | MultivariateGaussianPredictive):
        raise TypeError(
            f"variances need the predictive of Regression, got {type(predictive).__name__}; "
            "scale classification by TemperatureScaling"
        )
    if predictive.mean.shape[-1] != num_outputs:
        raise ValueError(
            f"this scaling is for num_outputs={num_outputs}, got predictions of "
            f"{predictive.mean.shape[-1]} outputs; construct VarianceScaling with their number"
        )


def _squares(predictive: Any, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weighted sums of r²/v, (K,), or of rrᵀ∘C⁻¹, (K, K), and of the weights."""
    mean, shape = predictive.mean, predictive.batch_shape
    error = check_target(target, shape, mean.shape[-1]) - mean
    joint = isinstance(predictive, MultivariateGaussianPredictive)
    if weight is None:
        weight = error.new_ones(shape)
    elif joint and weight.shape != shape:
        raise ValueError(
            "correlated outputs are scaled together and take one weight per example, of shape "
            f"{tuple(shape)}, got {tuple(weight.shape)}"
        )
    weights = check_weight(weight, shape, mean.shape[-1]).to(error)
    check_weights(weights)
    error = error.where(weights != 0, 0)
    if not joint:
        terms = weights * error.square() / predictive.variance
        return terms.reshape(-1, mean.shape[-1]).sum(0), weights.expand_as(terms).flatten(
            0, -2
        ).sum(0)
    precision = torch.cholesky_inverse(torch.linalg.cholesky(predictive.covariance))
    terms = (weights * error).unsqueeze(-1) * precision * error.unsqueeze(-2)
    return terms.reshape(-1, *terms.shape[-2:]).sum(0), weights.sum()


def _joint_scale(matrix: Tensor) -> Tensor:
    """The c = u⁻² that minimises ½uᵀAu − Σ log u, (K,), for A (K, K), by damped Newton."""
    inverse_stddev = matrix.diagonal().rsqrt()
    for _ in range(100):
        gradient = matrix @ inverse_stddev - 1 / inverse_stddev
        step = torch.linalg.solve(matrix + inverse_stddev.pow(-2).diag(), gradient)
        decrement = (gradient @ step).clamp(min=0).sqrt()
        # self-concordant: this length keeps u positive and always descends
        inverse_stddev = inverse_stddev - step / (1 + decrement)
        if decrement < 1e-12:
            break
    return inverse_stddev.pow(-2)
