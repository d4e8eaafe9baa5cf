"""Labels of classes as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ..values import is_missing
from ._reading import Array


def checked_labels(y: Any) -> Array:
    """Labels as an array, (num_rows,), if none is missing."""
    labels: Array = column_or_1d(y, warn=True)
    _check_no_missing(labels)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    return labels


def distinct(labels: Array, name: str) -> Array:
    """The classes, sorted; `name` is of the estimator that needs two or more."""
    classes: Array = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(f"{name} needs at least two classes, got 1 class: {classes.tolist()[0]!r}")
    return classes


def numbered(labels: Array, classes: Array) -> Array:
    """The index of each label among the classes, as floats."""
    numbers = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    unknown = np.unique(labels[classes[numbers] != labels])
    if len(unknown):
        raise ValueError(
            f"y has classes that were not in training: {unknown.tolist()}; fit again with them"
        )
    return numbers.astype(float)


def _check_no_missing(labels: Array) -> None:
    """Raise for missing labels: NaN, None, or the NA of pandas."""
    count = sum(map(is_missing, labels.tolist())) if labels.dtype.kind in "Of" else 0
    if count:
        raise ValueError(
            f"Input y contains NaN: {count} of {len(labels)} labels are missing; leave out those "
            "rows"
        )
