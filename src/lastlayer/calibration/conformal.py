"""Split-conformal intervals and sets: coverage guaranteed, whatever the model.

If held-out and new examples are exchangeable, and the model has not seen them, then

    P(target covered) ≥ level,

on average over held-out sets of any size n, and with continuous scores at most 1/(n + 1) above.
Given one held-out set, the coverage is Beta(r, n + 1 − r), r = ⌈(n + 1) · level⌉, distributed.
With fewer than about level/(1 − level) held-out examples only the trivial answer has the
guarantee, and is given: an infinite interval, the set of all classes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._checks import check_choice, check_count, check_labels, check_target
from .._data import Data
from .._streaming import labelled
from ..predictive import ClassificationPredictive, RegressionPredictive


def upper_quantile(scores: Tensor, level: float | Fraction) -> Tensor:
    """The threshold that a further score exceeds with probability at most 1 − level.

    The ⌈(n + 1) · level⌉-th smallest of n scores, or infinity if there are too few.

    Args:
        scores: exchangeable scores, (n, *outputs).
        level: the probability not to be exceeded, between 0 and 1.

    Returns:
        One value per output, (*outputs,).
    """
    check_level(level)
    if bool(scores.isnan().any()):
        raise ValueError("scores hold NaN, which have no rank; check the predictions and targets")
    count = len(scores)
    if not isinstance(level, Fraction):
        level = Fraction(str(float(level)))  # 0.07 means 7/100
    rank = math.ceil((count + 1) * level)
    if rank > count:
        return scores.new_full(scores.shape[1:], math.inf)
    return scores.kthvalue(rank, dim=0).values


def check_level(level: float | Fraction) -> None:
    """Raise unless level is a probability strictly between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}; 0.9 is 90 percent")


class _Conformal(nn.Module, ABC):
    """A threshold on a score of predictive and target."""

    threshold: Tensor

    def __init__(self, level: float, shape: tuple[int, ...]) -> None:
        super().__init__()
        check_level(level)
        self.level = level
        # before any example is seen, only the trivial answer covers
        self.register_buffer("threshold", torch.full(shape, math.inf))

    @abstractmethod
    def _scores(self, predictive: Any, target: Tensor, generator: torch.Generator | None) -> Tensor:
        """Nonconformity of each target to its prediction, (examples, …)."""

    def _fit(
        self,
        model: Callable[[Any], Any],
        data: Data,
        batch_size: int,
        progress: bool | None,
        generator: torch.Generator | None = None,
    ) -> None:
        scores = []
        for predictive, target, weight in labelled(model, data, batch_size, progress):
            if weight is not None:
                raise ValueError(
                    "the guarantee is for exchangeable examples, which have no weights; pass "
                    "(inputs, target) alone, without the examples to be ignored"
                )
            scores.append(self._scores(predictive, target, generator))
        # rounded upwards, lest the score that is the threshold itself be left out
        quantile = upper_quantile(torch.cat(scores), self.level)
        rounded = quantile.to(self.threshold)
        above = torch.nextafter(rounded, torch.full_like(rounded, math.inf))
        self.threshold.copy_(rounded.where(rounded >= quantile, above))

    def extra_repr(self) -> str:
        """The level, for printing."""
        return f"level={self.level}"


class ConformalIntervals(_Conformal):
    """Intervals that cover each output with a guaranteed probability, around the mean.

    The mean plus and minus a multiple of the predicted standard deviation, or, not normalised,
    plus and minus a constant. The guarantee holds for each output by itself, on average over
    inputs. Before `fit`, intervals are infinite.

    Args:
        num_outputs: K.
        level: the probability to cover, 0.9 by default.
        normalized: whether intervals are wide where the predictive is.

    Attributes:
        threshold: half the width, in standard deviations if normalised, (K,), a buffer.
    """

    def __init__(
        self, num_outputs: int = 1, *, level: float = 0.9, normalized: bool = True
    ) -> None:
        check_count("num_outputs", num_outputs)
        super().__init__(level, (num_outputs,))
        self.normalized = normalized

    def fit(
        self,
        model: Callable[[Any], Any],
        data: Data,
        *,
        batch_size: int = 1024,
        progress: bool | None = None,
    ) -> ConformalIntervals:
        """Set the widths from held-out data that the model has not seen.

        Args:
            model: a regression, calibrated or not.
            data: inputs and targets.
            batch_size: of tensors and Datasets.
            progress: whether to show a progress bar; None for where there is a terminal.

        Returns:
            Itself.
        """
        self._fit(model, data, batch_size, progress)
        return self

    def forward(self, predictive: Any) -> tuple[Tensor, Tensor]:
        """Lower and upper ends, rounded outwards, (*batch, K) each.

        Whatever has a score of at most the threshold lies between them, rounding or not: so do
        all of many targets that are tied at the threshold.
        """
        mean, unit = self._location(predictive)
        rounding = max(torch.finfo(t.dtype).eps for t in (mean, self.threshold))
        width = (1 + 8 * rounding) * self.threshold.to(mean) * unit  # the score, and this product
        lower, upper = mean - width, mean + width
        return lower - rounding * lower.abs(), upper + rounding * upper.abs()

    def _scores(self, predictive: Any, target: Tensor, generator: torch.Generator | None) -> Tensor:
        mean, unit = self._location(predictive)
        target = check_target(target, mean.shape[:-1], mean.shape[-1])
        return ((target - mean).abs() / unit).reshape(-1, mean.shape[-1])

    def _location(self, predictive: Any) -> tuple[Tensor, Tensor]:
        predictive = RegressionPredictive.check(predictive, "for classes use ConformalSets")
        mean = predictive.mean
        if mean.shape[-1:] != self.threshold.shape:
            raise ValueError(
                f"these intervals are for num_outputs={len(self.threshold)}, got a mean of shape "
                f"{tuple(mean.shape)}; construct ConformalIntervals with the number of outputs"
            )
        return mean, predictive.stddev if self.normalized else torch.ones_like(mean)


class ConformalSets(_Conformal):
    """Sets of classes that hold the label with a guaranteed probability.

    "threshold" takes every class whose probability is large enough: the smallest sets on average
    (Sadinle et al., 2019). "adaptive" takes classes from the likeliest down until their
    probabilities add up to enough, the last one at random (Romano et al., 2020): larger sets where
    it is hard, and a coverage that varies less between inputs. Either set may be empty, where no
    class conforms. Before `fit`, sets hold all classes.

    Args:
        level: the probability to cover, 0.9 by default.
        method: "threshold" or "adaptive".
        randomized: whether "adaptive" decides about the last class at random; if not, sets are
            larger.

    Attributes:
        threshold: of −log p_y, or of the probability added up, (), a buffer.
    """

    def __init__(
        self,
        *,
        level: float = 0.9,
        method: Literal["threshold", "adaptive"] = "threshold",
        randomized: bool = True,
    ) -> None:
        check_choice("method", method, ("threshold", "adaptive"))
        super().__init__(level, ())
        self.method, self.randomized = method, randomized

    def fit(
        self,
        model: Callable[[Any], Any],
        data: Data,
        *,
        batch_size: int = 1024,
        progress: bool | None = None,
        generator: torch.Generator | None = None,
    ) -> ConformalSets:
        """Set the threshold from held-out data that the model has not seen.

        Args:
            model: a classifier, calibrated or not.
            data: inputs and labels.
            batch_size: of tensors and Datasets.
            progress: whether to show a progress bar; None for where there is a terminal.
            generator: of the random numbers of "adaptive".

        Returns:
            Itself.
        """
        self._fit(model, data, batch_size, progress, generator)
        return self

    def forward(self, predictive: Any, generator: torch.Generator | None = None) -> Tensor:
        """Whether each class is in the set, (*batch, K), boolean."""
        return ~(self._class_scores(predictive, generator) > self.threshold)  # NaN is in all

    def _scores(self, predictive: Any, target: Tensor, generator: torch.Generator | None) -> Tensor:
        scores = self._class_scores(predictive, generator)
        target = check_labels(target, scores.shape[:-1])
        return scores.gather(-1, target.unsqueeze(-1)).flatten()

    def _class_scores(self, predictive: Any, generator: torch.Generator | None) -> Tensor:
        """The score of each class as the label, (*batch, K)."""
        classes = ClassificationPredictive.check(
            predictive, "for regression use ConformalIntervals"
        )
        log_probs = classes.log_probs()
        if self.method == "threshold":
            return -log_probs
        probs, order = log_probs.exp().sort(dim=-1, descending=True, stable=True)
        share = torch.ones_like(probs[..., :1])
        if self.randomized:
            share = torch.rand(
                share.shape, generator=generator, dtype=probs.dtype, device=probs.device
            )
        before = probs.cumsum(-1) - probs  # of the likelier classes
        return torch.empty_like(probs).scatter(-1, order, before + share * probs)
