"""Variance scaling of regression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._checks import check_count, check_weight, check_weights
from .._data import Data
from .._streaming import labelled
from ..predictive import RegressionPredictive
from ._base import Scaling


class VarianceScaling(Scaling):
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
            check_outputs(self, predictive, len(self.variance_scale))
            terms, weights = _squares(predictive.to(torch.float64), target, weight)
            squares = squares + terms
            total = total + weights
        mean = torch.as_tensor(squares / total)
        scale = mean if mean.ndim == 1 else _joint_scale(mean)
        check_errors(scale, mean)
        self.variance_scale.copy_(scale)
        return self

    def forward(self, predictive: Any) -> Any:
        """The predictive with scaled variances."""
        predictive = check_outputs(self, predictive, len(self.variance_scale))
        return predictive.scale_variance(self.variance_scale.to(predictive.mean))

    @classmethod
    def like(cls, predictive: Any) -> VarianceScaling:
        """A new scaling for predictives such as this."""
        return cls(RegressionPredictive.check(predictive).num_outputs)

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


def check_outputs(scaling: Scaling, predictive: Any, num_outputs: int) -> RegressionPredictive:
    """Return a predictive of regression that a scaling of so many outputs is for, or raise."""
    regression = RegressionPredictive.check(
        predictive, "scale classification by TemperatureScaling"
    )
    scaling._applies(regression)
    if regression.num_outputs != num_outputs:
        raise ValueError(
            f"this scaling is for num_outputs={num_outputs}, got predictions of "
            f"{regression.num_outputs} outputs; construct {type(scaling).__name__} with their "
            "number"
        )
    return regression


def _squares(
    predictive: RegressionPredictive, target: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Weighted sums of r²/v, (K,), or of rrᵀ∘C⁻¹, (K, K), and of the weights."""
    shape = predictive.batch_shape
    terms = predictive.standardized_squares(target)  # (*batch, K), or (*batch, K, K)
    joint = terms.ndim > len(shape) + 1
    if weight is None:
        weight = terms.new_ones(shape)
    elif joint and weight.shape != shape:
        raise ValueError(
            "correlated outputs are scaled together and take one weight per example, of shape "
            f"{tuple(shape)}, got {tuple(weight.shape)}"
        )
    weights = check_weight(weight, shape, predictive.num_outputs).to(terms)
    check_weights(weights)
    weights = weights.unsqueeze(-1) if joint else weights
    terms = (weights * terms).where(weights != 0, 0)
    size = terms.shape[len(shape) :]
    return terms.reshape(-1, *size).sum(0), weights.expand_as(terms).reshape(-1, *size).sum(0)


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
