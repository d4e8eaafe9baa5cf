"""Settings of training: checks, and what "auto" stands for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..._checks import check_count, check_number

MAX_BATCH_SIZE = 1024
MIN_STEPS = 64  # of the shortest training
MAX_EPOCHS = 1024  # of the longest training,
MANY_ROWS = 8192  # and proportionally fewer with more rows, so that the number of steps is bounded
ENOUGH_HELD_OUT = 2000  # rows to choose and calibrate by; once reached, no further fold is held out


class Plan(NamedTuple):
    """The size of a cross-validation."""

    num_folds: int
    num_held_out: int  # folds
    batch_size: int
    min_epochs: int
    max_epochs: int

    @classmethod
    def of(cls, num_rows: int, num_folds: int, batch_size: Any, max_epochs: Any) -> Plan:
        """The plan for a number of rows, from settings of an estimator."""
        check_count("num_folds", num_folds, 2)
        if batch_size == "auto":
            num_batches = math.ceil(num_rows / MAX_BATCH_SIZE)
            batch_size = math.ceil(num_rows / num_batches)  # no small last batch
        if max_epochs == "auto":
            max_epochs = max(1, min(MAX_EPOCHS, MAX_EPOCHS * MANY_ROWS // num_rows))
        check_count("batch_size", batch_size)
        check_count("max_epochs", max_epochs)
        num_folds = min(num_folds, num_rows)
        num_held_out = min(num_folds, math.ceil(num_folds * ENOUGH_HELD_OUT / num_rows))
        min_epochs = min(max_epochs, max(1, MIN_STEPS * batch_size // num_rows))
        return cls(num_folds, num_held_out, batch_size, min_epochs, max_epochs)


def check_widths(widths: Any) -> None:
    """Raise unless the settings of hidden layers are widths."""
    if isinstance(widths, str) or not isinstance(widths, Iterable):
        raise ValueError(
            f"hidden_layers must hold the width of each layer, got {widths!r}; pass a tuple, as "
            "(50, 50), or () for none"
        )
    for width in widths:
        check_count("each width in hidden_layers", width)


def check_decays(decays: Any) -> None:
    """Raise unless the candidates for the weight decay are numbers."""
    if isinstance(decays, str) or not isinstance(decays, Iterable):
        raise ValueError(
            f"weight_decays must hold the numbers to try, got {decays!r}; pass a tuple, as (30.0,)"
        )
    for decay in decays:
        check_number("each of weight_decays", decay)
