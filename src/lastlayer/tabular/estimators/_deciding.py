"""Class weights, and the probability from which on a rare class is predicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
CRITERIA = ("balanced_accuracy", "f1")


def class_weights(class_weight: Any, classes: NDArray[Any], labels: Array, weight: Array) -> Array:
    """The factor of each class, (num_classes,), as in scikit-learn.

    Args:
        class_weight: "balanced", or a mapping from labels to factors, one where there is none.
        classes: the labels.
        labels: index of the class of each row, (T,).
        weight: how often each row counts, (T,).
    """
    if class_weight == "balanced":
        counts = np.bincount(labels.astype(int), weight, minlength=len(classes))
        return weight.sum() / (len(classes) * np.where(counts > 0, counts, np.inf))
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"class_weight must be 'balanced' or a dict of weights by label, got {class_weight!r}"
        )
    unknown = [label for label in class_weight if label not in classes]
    if unknown:
        raise ValueError(
            f"class_weight has labels that are not in y: {unknown}; y has {classes.tolist()}"
        )
    factors = np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
    if not (factors > 0).all() or not np.isfinite(factors).all():
        raise ValueError(f"class_weight must hold positive numbers, got {class_weight!r}")
    return factors


def check_threshold(threshold: Any, num_classes: int) -> None:
    """Raise unless the threshold is one of two classes."""
    if threshold is None:
        return
    is_number = isinstance(threshold, int | float) and 0 < threshold < 1
    if not is_number and threshold not in CRITERIA:
        raise ValueError(
            "threshold must be a probability between 0 and 1, or one of "
            f"{', '.join(map(repr, CRITERIA))}, by which held-out data choose, got {threshold!r}"
        )
    if num_classes != 2:
        raise ValueError(
            f"threshold is for two classes, but y has {num_classes}; pass None, and class_weight"
        )


def best_threshold(criterion: str, probs: Array, labels: Array, weight: Array) -> float:
    """The threshold of highest F1 or balanced accuracy, midway between neighbouring predictions.

    Args:
        criterion: one of CRITERIA.
        probs: probability of the second class, (T,).
        labels: whether it is that class, (T,).
        weight: (T,).
    """
    order = np.argsort(-probs, kind="stable")
    probs, positive, weight = probs[order], labels[order] == 1, weight[order]
    right = np.cumsum(weight * positive)  # true positives, if all up to here are taken
    wrong = np.cumsum(weight * ~positive)
    last = np.append(probs[1:] < probs[:-1], True)  # of equal probabilities
    if criterion == "f1":
        score = 2 * right / (right + wrong + right[-1])
    else:
        score = right / max(right[-1], 1e-300) - wrong / max(wrong[-1], 1e-300)
    at = int(np.where(last, score, -np.inf).argmax())
    below = probs[at + 1] if at + 1 < len(probs) else 0.0
    return float((probs[at] + below) / 2)
