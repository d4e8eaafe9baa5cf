"""Scores that are functions of a predictive, over data sets, and thresholds for them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from .._checks import check_choice
from .._data import Data
from .._streaming import predictions
from ..calibration.conformal import upper_quantile
from ..predictive import ClassificationPredictive, Predictive

GEN_POWER, GEN_CLASSES = 0.1, 100  # as published


def max_probability(predictive: Any) -> Tensor:
    """1 − max_y p(y), (*batch,); the paper's score for discriminative heads.

    Added up from the other classes, so that it tells inputs apart however sure the model is.
    """
    classes = ClassificationPredictive.check(predictive, "choose another score")
    probs = classes.probs()
    return probs.scatter(-1, probs.argmax(-1, keepdim=True), 0).sum(-1)


def predictive_entropy(predictive: Any) -> Tensor:
    """Entropy of the target in nats, weights and noise together, (*batch,)."""
    return Predictive.check(predictive).entropy()


def energy(predictive: Any) -> Tensor:
    """−log Σ_k exp z_k of the logits, or of their means, (*batch,) (Liu et al., 2020)."""
    return -_mean_logits(predictive).logsumexp(-1)


def max_logit(predictive: Any) -> Tensor:
    """−max_k z_k of the logits, or of their means, (*batch,) (Hendrycks et al., 2022)."""
    return -_mean_logits(predictive).amax(-1)


def generalized_entropy(predictive: Any) -> Tensor:
    """GEN, Σ_k (p_k(1 − p_k))^0.1 over the 100 likeliest classes, (*batch,) (Liu et al., 2023)."""
    probs = ClassificationPredictive.check(predictive, "choose another score").probs()
    if probs.shape[-1] > GEN_CLASSES:
        probs = probs.topk(GEN_CLASSES, -1).values
    return (probs * (1 - probs)).clamp(min=0).pow(GEN_POWER).sum(-1)


def mutual_information(predictive: Any) -> Tensor:
    """Mutual information of target and weights in nats: epistemic only, (*batch,)."""
    return _uncertain(predictive, "mutual information").mutual_information()


def epistemic_variance(predictive: Any) -> Tensor:
    """Variance due to the weights, of targets or of logits, summed over outputs, (*batch,)."""
    return _uncertain(predictive, "epistemic variance").total_epistemic_variance()


def _mean_logits(predictive: Any) -> Tensor:
    return ClassificationPredictive.check(predictive, "choose another score").mean_logits()


def _uncertain(predictive: Any, what: str) -> Predictive:
    """The predictive, if its weights are uncertain: all inputs would have a score of zero."""
    checked = Predictive.check(predictive)
    if checked.has_certain_weights():
        raise TypeError(
            f"the {what} of every input is zero, because the weights of this model have no "
            "distribution; choose a score that needs none, as 'energy' or FeatureDensity, or give "
            "the model a Bayesian last layer by lastlayer.posttrain"
        )
    return checked


def feature_density(predictive: Any) -> Tensor:
    """−log p(φ) of the features in nats, (*batch,); the paper's for generative heads."""
    return -Predictive.check(predictive).log_density()


SCORES: dict[str, Callable[[Any], Tensor]] = {
    score.__name__: score
    for score in (
        max_probability,
        predictive_entropy,
        generalized_entropy,
        energy,
        max_logit,
        mutual_information,
        epistemic_variance,
        feature_density,
    )
}


def scores(
    model: Callable[[Any], Any],
    data: Data | Tensor,
    score: str | Callable[[Any], Tensor] = "predictive_entropy",
    *,
    batch_size: int = 1024,
    progress: bool | None = None,
) -> Tensor:
    """Score every example of a data set, in evaluation mode and without gradients.

    Args:
        model: from inputs to what the score takes: a network for scores of a predictive, its
            backbone for a `FeatureDensity`.
        data: inputs, or data in any of the forms of `lastlayer.data`; targets are ignored.
        score: a name in `SCORES`, or any function of what the model returns.
        batch_size: of tensors and Datasets.
        progress: whether to show a progress bar; None for where there is a terminal.

    Returns:
        One value per example, (num_examples, …).
    """
    if isinstance(score, str):
        check_choice("score", score, SCORES)
        score = SCORES[score]
    with torch.no_grad():
        outputs = predictions(model, data, batch_size=batch_size, progress=progress)
        parts = [score(output) for output, _ in outputs]
    if not parts:
        raise ValueError("there is no example to score: data is empty")
    return torch.cat(parts)


def threshold(in_distribution: Tensor, false_alarm_rate: float = 0.05) -> float:
    """The score above which to flag an input.

    A new input from the distribution of the given ones is flagged, `score > threshold`, with
    probability at most `false_alarm_rate`: the split-conformal quantile. Infinite, so that
    nothing is flagged, if there are fewer than 1/rate − 1 scores.

    Args:
        in_distribution: scores of held-out inputs, not of training inputs, of any shape.
        false_alarm_rate: the share of good inputs that may be flagged.
    """
    if not 0 < false_alarm_rate < 1:
        raise ValueError(
            f"false_alarm_rate must lie between 0 and 1, got {false_alarm_rate!r}; "
            "0.05 flags one good input in twenty"
        )
    level = 1 - Fraction(str(float(false_alarm_rate)))  # exact, as 1 − 0.07 is not
    return float(upper_quantile(in_distribution.flatten(), level))
