"""Temperature scaling of classification."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._checks import check_positive, check_range, check_weight, check_weights
from .._data import Data
from .._streaming import labelled
from ..predictive import ClassificationPredictive
from ._base import Scaling

LARGEST_GRAPH = 1 << 14  # classes times examples; several kilobytes each for the gradient
LARGEST_TEMPERATURE = 100.0  # and its inverse the smallest
PRIOR_STDDEV = 0.7  # of log τ; decision 27


class TemperatureScaling(Scaling):
    r"""Class probabilities at another temperature, softmax(z/τ); τ > 1 is less confident.

    Gaussian logits of a discriminative head are divided by τ, so their mean by τ and their
    variances by τ²; the mean softmax is then taken as before. Of a generative head the class
    probabilities become softmax(log p(φ, y)/τ), while the density of the features log p(φ) stays.
    Of a mixture every component is scaled.

    A priori log τ is N(0, σ²), worth a handful of examples: without it, the best temperature of ten
    examples that are all predicted right is zero.

    Args:
        temperature: τ, until it is fitted.
        prior_stddev: σ; `math.inf` for the likelihood alone.

    Attributes:
        temperature: τ, (), a buffer.
    """

    temperature: Tensor

    def __init__(self, temperature: float = 1.0, *, prior_stddev: float = PRIOR_STDDEV) -> None:
        super().__init__()
        check_positive("temperature", temperature)
        if not prior_stddev > 0:
            raise ValueError(
                f"prior_stddev must be positive, got {prior_stddev}; math.inf is no prior"
            )
        self.prior_stddev = prior_stddev
        self.register_buffer("temperature", torch.tensor(float(temperature)))

    def fit(
        self,
        model: Callable[[Any], Any],
        data: Data,
        *,
        batch_size: int = 1024,
        progress: bool | None = None,
    ) -> TemperatureScaling:
        """Minimise the negative log-likelihood of held-out labels, less the log-prior of τ.

        Walks downhill from τ = 1 to where the slope in log τ is zero: deterministic, and never
        worse than not scaling. τ stays between 1/100 and 100; without a prior it ends there if
        every label is predicted right, or if the predictions are worse than none.

        Args:
            model: a classifier that was not trained on this data.
            data: inputs and labels.
            batch_size: of tensors and Datasets.
            progress: whether to show a progress bar; None for where there is a terminal.

        Returns:
            Itself.
        """
        held_out: list[Any] = []
        for predictive, target, weight in labelled(model, data, batch_size, progress):
            if weight is not None:
                weight = check_weight(weight, target.shape, None)
                check_weights(weight)
                target = target.where(weight != 0, 0)  # ignored, whatever it is
            num_classes = self._check(predictive).num_classes
            check_range(target, num_classes)
            whole = (predictive.detach().to(torch.float64), target, weight)
            size = max(1, LARGEST_GRAPH // num_classes)
            held_out += [
                tuple(part if part is None else part[at : at + size] for part in whole)
                for at in range(0, len(target), size)
            ]
        if not any(weight is None or bool(weight.any()) for *_, weight in held_out):
            raise ValueError("the weights of the held-out data are all zero")

        def slope(log_temperature: float) -> float:
            total = log_temperature / self.prior_stddev**2
            for predictive, target, weight in held_out:
                point = torch.tensor(
                    log_temperature, dtype=torch.float64, device=target.device, requires_grad=True
                )
                with torch.enable_grad():
                    loss = -predictive.temper(point.exp()).log_prob(target)
                    loss = loss if weight is None else loss * weight
                    total += torch.autograd.grad(loss.sum(), point)[0].item()
            if not math.isfinite(total):
                raise ValueError("held-out predictions hold NaN: their likelihood has no slope")
            return total / sum(target.numel() for _, target, _ in held_out)

        self.temperature.fill_(math.exp(_lowest(slope, math.log(LARGEST_TEMPERATURE))))
        return self

    def forward(self, predictive: Any) -> Any:
        """The predictive at temperature τ."""
        return self._check(predictive).temper(self.temperature)

    @classmethod
    def like(cls, predictive: Any) -> TemperatureScaling:
        """A new scaling for predictives such as this."""
        return cls()

    def _check(self, predictive: Any) -> ClassificationPredictive:
        otherwise = "scale regression by VarianceScaling or TailScaling"
        classes = ClassificationPredictive.check(predictive, otherwise)
        self._applies(classes)
        return classes

    def extra_repr(self) -> str:
        """The temperature, for printing."""
        return f"temperature={self.temperature.item():.4g}"


def _lowest(slope: Callable[[float], float], bound: float) -> float:
    """The minimum of a function, downhill from zero and within ±bound, from its derivative."""
    start, start_slope = 0.0, slope(0.0)
    if start_slope == 0:
        return start
    step = -math.copysign(1.0, start_slope)
    while True:  # bracket
        end = max(-bound, min(bound, start + step))
        if end == start:
            return end
        end_slope = slope(end)
        if start_slope * end_slope <= 0:
            break
        start, start_slope = end, end_slope
    for _ in range(100):  # Illinois: the secant, halving the slope of an end that stays
        if end_slope == 0:
            break
        middle = (start * end_slope - end * start_slope) / (end_slope - start_slope)
        if abs(middle - end) < 1e-12:
            break
        middle_slope = slope(middle)
        if middle_slope * end_slope <= 0:
            start, start_slope = end, end_slope
        else:
            start_slope /= 2
        end, end_slope = middle, middle_slope
    return end
