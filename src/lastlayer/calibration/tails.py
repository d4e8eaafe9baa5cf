"""Variance and tails of regression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._checks import check_count, check_weight, check_weights
from .._data import Data
from .._streaming import labelled
from ..functional import LOG_2PI
from ..predictive import GaussianMixturePredictive, RegressionPredictive
from ._base import Scaling
from .variance import check_errors, check_outputs

STARTS = (0.0, 0.3, 1.5)  # of τ; zero, where the gradient is zero too, is the Gaussian


class TailScaling(Scaling):
    r"""Variances times a factor that is itself uncertain: scaled, with heavier tails.

    Real errors are rarely Gaussian: most are smaller than their standard deviation, and a few
    much larger. Here the variance has a log-normal factor, $v\,c_k\,e^{\tau z}$ with
    $z \sim N(0, 1)$, as S equally likely components at the quantiles of z; $\tau = 0$ is the
    Gaussian of `VarianceScaling`. Factor and spread are those that minimise the negative
    log-likelihood of held-out targets. The mean stays.

    Args:
        num_outputs: K; the outputs of an example share the draw of z.
        num_components: S.

    Attributes:
        variance_scale: c, (K,), a buffer.
        log_variance_spread: τ, (), a buffer.
    """

    variance_scale: Tensor
    log_variance_spread: Tensor

    def __init__(self, num_outputs: int = 1, num_components: int = 16) -> None:
        super().__init__()
        check_count("num_outputs", num_outputs)
        check_count("num_components", num_components, 2)
        self.num_components = num_components
        self.register_buffer("variance_scale", torch.ones(num_outputs))
        self.register_buffer("log_variance_spread", torch.zeros(()))

    def fit(
        self,
        model: Callable[[Any], Any],
        data: Data,
        *,
        batch_size: int = 1024,
        progress: bool | None = None,
    ) -> TailScaling:
        """Minimise the negative log-likelihood of held-out targets.

        Args:
            model: a regression that was not trained on this data.
            data: inputs and targets; examples of weight zero are ignored, even if they are NaN.
            batch_size: of tensors and Datasets.
            progress: whether to show a progress bar; None for where there is a terminal.

        Returns:
            Itself.
        """
        parts = []
        for predictive, target, weight in labelled(model, data, batch_size, progress):
            self._check(predictive)
            parts.append(_squares(predictive.to(torch.float64), target, weight))
        squares, weights = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        mean = (weights.unsqueeze(-1) * squares).sum(0) / weights.sum()
        check_errors(mean, mean)
        fits = [_minimise(squares, weights, mean, start, self._quantiles(mean)) for start in STARTS]
        _, scale, spread = min(fits, key=lambda fit: fit[0])
        self.variance_scale.copy_(scale)
        self.log_variance_spread.copy_(spread)
        return self

    def forward(self, predictive: Any) -> GaussianMixturePredictive:
        """The predictive with scaled variances and heavier tails."""
        predictive = self._check(predictive)
        mean = predictive.mean
        spread = (self.log_variance_spread.to(mean) * self._quantiles(mean)).exp()
        return predictive.with_tails(spread.unsqueeze(-1) * self.variance_scale.to(mean))

    @classmethod
    def like(cls, predictive: Any) -> TailScaling:
        """A new scaling for predictives such as this."""
        return cls(RegressionPredictive.check(predictive).num_outputs)

    def extra_repr(self) -> str:
        """The sizes, for printing."""
        return f"num_outputs={len(self.variance_scale)}, num_components={self.num_components}"

    def _quantiles(self, like: Tensor) -> Tensor:
        """Midpoint quantiles of z, (S,)."""
        shares = torch.arange(self.num_components, dtype=like.dtype, device=like.device) + 0.5
        return torch.special.ndtri(shares / self.num_components)

    def _check(self, predictive: Any) -> Any:
        return check_outputs(self, predictive, len(self.variance_scale))


def _squares(predictive: Any, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Squared standardised errors, (T, K), and weights, (T,)."""
    shape = predictive.batch_shape
    squares = predictive.standardized_squares(target)  # (*batch, K)
    weight = squares.new_ones(shape) if weight is None else weight
    if weight.shape != shape:
        raise ValueError(
            "outputs share their tails and take one weight per example, of shape "
            f"{tuple(shape)}, got {tuple(weight.shape)}"
        )
    weights = check_weight(weight, shape, 1).to(squares)  # (*batch, 1)
    check_weights(weights)
    squares = squares.where(weights != 0, 0)
    return squares.reshape(-1, predictive.num_outputs), weights.reshape(-1)


def _minimise(
    squares: Tensor, weights: Tensor, mean: Tensor, start: float, quantiles: Tensor
) -> tuple[float, Tensor, Tensor]:
    """The loss, c and τ ≥ 0 where L-BFGS ends from an initial τ."""
    log_scale = mean.log().requires_grad_()
    spread = mean.new_tensor(start).requires_grad_(start > 0)

    def loss() -> Tensor:
        log_factor = log_scale + spread * quantiles.unsqueeze(-1)  # (S, K)
        scaled = squares.unsqueeze(-2) * (-log_factor).exp()  # (T, S, K)
        log_probs = -0.5 * (scaled + log_factor + LOG_2PI).sum(-1)
        return -(weights * log_probs.logsumexp(-1)).sum() / weights.sum()

    variables = [log_scale, spread] if start > 0 else [log_scale]
    optimizer = torch.optim.LBFGS(
        variables, max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(closure)
    return loss().item(), log_scale.detach().exp(), spread.detach().abs()
