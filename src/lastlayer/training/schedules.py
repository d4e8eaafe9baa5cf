"""Schedules: the factor of the learning rate as a function of the fraction of training done."""

from __future__ import annotations

import math
from collections.abc import Callable

from .._checks import check_choice, check_number

Schedule = Callable[[float], float]


def constant(_: float) -> float:
    """The same learning rate throughout."""
    return 1.0


def cosine(done: float) -> float:
    """A learning rate that falls to zero along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * done))


def warmup(fraction: float = 0.05, then: str | Schedule = "cosine") -> Schedule:
    """A schedule after a linear rise from zero.

    Args:
        fraction: of training that the rise takes.
        then: the schedule of the rest, by name or as a function.
    """
    _check_fraction("fraction", fraction)
    after = named(then)

    def factor(done: float) -> float:
        return min(1.0, done / fraction) * after(max(0.0, done - fraction) / (1 - fraction))

    return factor


def one_cycle(peak: float = 0.25, start: float = 0.0, end: float = 0.0) -> Schedule:
    """A triangle: a linear rise to the learning rate, and a linear fall until the end.

    Args:
        peak: the fraction of training at which the learning rate is highest.
        start: the factor of the learning rate at the beginning.
        end: the factor at the end.
    """
    _check_fraction("peak", peak)
    for name, value in (("start", start), ("end", end)):
        check_number(name, value)
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value!r}")

    def factor(done: float) -> float:
        if done < peak:
            return start + (1 - start) * done / peak
        return end + (1 - end) * (1 - done) / (1 - peak)

    return factor


def named(schedule: str | Schedule) -> Schedule:
    """A schedule by its name; a function is one already."""
    if callable(schedule):
        return schedule
    check_choice("schedule", schedule, SCHEDULES)
    return SCHEDULES[schedule]


def _check_fraction(name: str, value: float) -> None:
    check_number(name, value)
    if not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1, both excluded, got {value!r}")


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "cosine": cosine,
    "warmup_cosine": warmup(then=cosine),
    "one_cycle": one_cycle(),
}
