"""Settings of training: presets, checks, and what "auto" stands for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..._checks import check_choice, check_count, check_number

BATCH_SIZES = 128, 512  # a sixty-fourth of the rows between these
MIN_STEPS = 64  # of the shortest training
MAX_STEPS = 2048  # of the longest training,
MAX_EPOCHS = 1024  # which has at most so many epochs,
FEW_EPOCHS, VERY_MANY_ROWS = 8, 10_000  # and from so many rows on so many
CLEARLY = 0.01  # nats by which the NLL falls
MANY_ROWS = 4000  # beyond which less is tried
FEW_ROWS = 2000  # up to which a linear model is tried, and bins only where there is one head


class Preset(NamedTuple):
    """How much a search tries."""

    length: float  # factor of the longest training
    enough_held_out: int  # rows to choose and calibrate by; then no further fold is held out
    varied: bool  # whether to try bins or a linear model, by the number of rows
    wider: bool  # whether to try wider and deeper networks
    weight_decays: tuple[float, ...]  # of which only the first with many rows


PRESETS = {
    "fast": Preset(0.25, 500, False, False, (30.0,)),
    "default": Preset(1.0, 1000, True, False, (30.0, 300.0)),
    "best": Preset(4.0, 5000, True, True, (30.0, 300.0, 3000.0)),
}


class Candidate(NamedTuple):
    """A network that held-out data may choose."""

    head: str
    widths: tuple[int, ...]
    binned: bool


class Plan(NamedTuple):
    """The size of a cross-validation."""

    num_folds: int
    num_held_out: int  # folds
    batch_size: int
    min_epochs: int
    max_epochs: int
    growth: int
    weight_decays: tuple[float, ...]

    @classmethod
    def of(
        cls,
        num_rows: int,
        preset: str,
        num_folds: int,
        batch_size: Any,
        max_epochs: Any,
        weight_decays: Any,
    ) -> Plan:
        """The plan for a number of rows, from settings of an estimator."""
        check_count("num_folds", num_folds, 2)
        chosen = PRESETS[preset]
        many = has_many_rows(preset, num_rows)
        if batch_size == "auto":
            smallest, largest = BATCH_SIZES
            num_batches = math.ceil(num_rows / min(max(num_rows // 64, smallest), largest))
            batch_size = math.ceil(num_rows / num_batches)  # no small last batch
        check_count("batch_size", batch_size)
        if max_epochs == "auto":
            bounded = FEW_EPOCHS * max(1.0, VERY_MANY_ROWS / num_rows) ** 2
            epochs = min(MAX_EPOCHS, bounded, max(FEW_EPOCHS, MAX_STEPS * batch_size / num_rows))
            max_epochs = max(1, int(chosen.length * epochs))
        check_count("max_epochs", max_epochs)
        num_folds = min(num_folds, num_rows)
        num_held_out = min(num_folds, math.ceil(num_folds * chosen.enough_held_out / num_rows))
        min_epochs = min(max_epochs, max(1, MIN_STEPS * batch_size // num_rows))
        if weight_decays == "auto":
            weight_decays = chosen.weight_decays[: 1 if many else None]
        growth = 4 if many else 2
        return cls(
            num_folds, num_held_out, batch_size, min_epochs, max_epochs, growth, weight_decays
        )


def has_many_rows(preset: str, num_rows: int) -> bool:
    """Whether less is tried, to save time."""
    return num_rows > MANY_ROWS and preset != "best"


def layouts(preset: str, widths: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Widths of hidden layers to try."""
    found = [tuple(widths)]
    if widths and PRESETS[preset].wider:
        found += [tuple(4 * width for width in widths), (*(2 * w for w in widths), 2 * widths[-1])]
    return found


def check_settings(preset: Any, widths: Any, decays: Any, time_limit: Any) -> None:
    """Raise unless the settings of an estimator are of the right kind."""
    check_choice("preset", preset, PRESETS)
    _check_widths(widths)
    _check_decays(decays)
    if time_limit is not None:
        check_number("time_limit", time_limit)
        if not 0 < time_limit < math.inf:
            raise ValueError(f"time_limit must be a positive number of seconds, got {time_limit!r}")


def _check_widths(widths: Any) -> None:
    """Raise unless the settings of hidden layers are widths."""
    if isinstance(widths, str) or not isinstance(widths, Iterable):
        raise ValueError(
            f"hidden_layers must hold the width of each layer, got {widths!r}; pass a tuple, as "
            "(50, 50), or () for none"
        )
    for width in widths:
        check_count("each width in hidden_layers", width)


def _check_decays(decays: Any) -> None:
    """Raise unless the candidates for the weight decay are numbers."""
    if decays == "auto":
        return
    if isinstance(decays, str) or not isinstance(decays, Iterable):
        raise ValueError(
            f"weight_decays must hold the numbers to try, got {decays!r}; pass a tuple, as (30.0,)"
        )
    for decay in decays:
        check_number("each of weight_decays", decay)


def ended_early(estimator: Any) -> str | None:
    """What to say if a search ended while its held-out NLL was still falling, or too soon for it.

    Not where the user chose the number of epochs.
    """
    gain = estimator.still_falling_
    if estimator.search_ended_ == "time_limit":
        return "the search ended at the time limit; a longer one may find better"
    if estimator.max_epochs == "auto" and gain > CLEARLY:
        more = "" if estimator.preset == "best" else 'preset="best" or '
        return (
            f"the search ended at {estimator.num_epochs_:,} epochs, with the held-out NLL still "
            f"falling (by {gain:.2g} the last time); {more}a larger max_epochs may find better"
        )
    return None
