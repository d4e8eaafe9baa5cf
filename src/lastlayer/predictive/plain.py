"""Models with plain outputs, logits or means, as models that return predictives."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._checks import check_choice, check_positive
from ._base import Predictive
from .classes import SoftmaxPredictive
from .gaussian import GaussianPredictive


class Plain(nn.Module):
    """A model with plain outputs, to be compared with a head in one line.

        metrics.evaluate(Plain(model, "classification"), held_out)
        TemperatureScaling().fit(Plain(model, "classification"), held_out)

    Args:
        model: from inputs to logits (*batch, K), or for regression to means (*batch, K) or to a
            pair of means and variances.
        task: "classification", the softmax of the logits, or "regression", Gaussian targets.
        variance: of regression targets whose model returns means alone; `VarianceScaling` finds
            it from held-out data.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Literal["classification", "regression"],
        *,
        variance: float = 1.0,
    ) -> None:
        super().__init__()
        check_choice("task", task, ("classification", "regression"))
        check_positive("variance", variance)
        self.model, self.task, self.variance = model, task, variance

    def forward(self, inputs: Any) -> Predictive:
        """The predictive."""
        outputs = self.model(inputs)
        pair = isinstance(outputs, tuple | list) and self.task == "regression"
        mean, variance = outputs if pair else (outputs, None)
        if not isinstance(mean, Tensor) or mean.ndim == 0 or not mean.is_floating_point():
            raise TypeError(
                f"the model must return a tensor of plain outputs, (*batch, K), got "
                f"{type(outputs).__name__}; wrap it in a module that does"
            )
        if self.task == "classification":
            return SoftmaxPredictive(mean)
        if variance is None:
            variance = torch.full_like(mean, self.variance)
        return GaussianPredictive(mean, torch.zeros_like(mean), variance)

    def extra_repr(self) -> str:
        """The task, for printing."""
        return f"task={self.task!r}"
