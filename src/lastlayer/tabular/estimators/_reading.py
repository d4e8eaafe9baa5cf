"""Tables and targets as numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    validate_data,
)

from ..columns import Columns
from ..rows import Rows

Array = NDArray[Any]


class TableReader(BaseEstimator, ABC):  # type: ignore[misc]
    """An estimator that reads arrays and frames, and infers what their columns hold."""

    columns_: Columns  # set by `read`

    @abstractmethod
    def _check(self) -> None:
        """Raise unless the settings are right, and forget what was read before."""

    @abstractmethod
    def _read_target(self, y: Any, *, reset: bool) -> Array:
        """Targets as numbers, (T, K); with `reset`, store their shape or classes."""

    def read(self, X: Any, y: Any, sample_weight: Any = None) -> Rows:  # noqa: N803
        """Infer columns from a table and read its rows: the first half of `fit`."""
        self._check()
        codes, target, weight = self._read(X, y, sample_weight, reset=True)
        rows = Rows.of(codes, target, weight)
        if len(rows.codes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs two or more different rows of positive weight to "
                f"estimate uncertainty, got {len(rows.codes)} (n_samples={len(codes)}, of which "
                "one sample is not enough)"
            )
        return rows

    def _read(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any,
        *,
        reset: bool,
    ) -> tuple[Array, Array, Array | None]:
        """Codes, targets as numbers, (num_rows, num_targets), and weights."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        codes = self._codes(X, weight, reset=reset)
        target = self._read_target(y, reset=reset)
        check_consistent_length(codes, target)
        return codes, target, weight

    def _codes(self, X: Any, weight: Array | None = None, *, reset: bool = False) -> Array:  # noqa: N803
        """The table as codes, (num_rows, num_used)."""
        frame = nw.from_native(X, pass_through=True)
        if isinstance(frame, nw.LazyFrame):
            raise TypeError("X is a lazy frame, which has no rows yet; pass X.collect()")
        if isinstance(frame, nw.DataFrame):
            validate_data(self, X, skip_check_array=True, reset=reset)
            if hasattr(self, "feature_names_in_"):  # not if names are numbers
                if reset:
                    self.columns_ = Columns.of(X, weight)
                return self.columns_.codes(X)
        array: Array = validate_data(
            self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=reset
        )
        if reset:
            self.columns_ = Columns.of(array)
        return self.columns_.codes(array)
