"""Interleaved timing, A B A B …, so that other load on the machine affects both sides alike."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Side = TypeVar("Side")  # what tells the sides apart, a name for instance

SLICE = 0.05  # seconds of one side in one round (at least one call),
SHARE = 0.1  # or this much of the slowest side's step, so that the fast side is called often
MAX_CALLS = 200  # of one side in one round


@dataclass(frozen=True)
class Timing:
    """Seconds of single calls."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def minimum(self) -> float:
        return min(self.seconds)

    @property
    def calls(self) -> int:
        return len(self.seconds)


def interleave(
    steps: Mapping[Side, Callable[[], object]], seconds: float, min_rounds: int
) -> dict[Side, Timing]:
    """Time every step call by call, interleaved.

    Args:
        steps: what to call, by side.
        seconds: time for all; slow steps may need more for `min_rounds`.
        min_rounds: minimum number of rounds.

    Returns:
        The time of every call, by side. The first calls of each are a warm-up and not counted.
    """
    durations = {}
    for name, step in steps.items():
        once = _time(step)  # warm-up: libraries, caches, the allocator
        durations[name] = min(once, _time(step)) if once < 1 else once
    share = max(SLICE, SHARE * max(durations.values()))
    calls = {name: max(1, min(MAX_CALLS, int(share / once))) for name, once in durations.items()}
    measured: dict[Side, list[float]] = {name: [] for name in steps}
    start, rounds = time.perf_counter(), 0
    while rounds < min_rounds or time.perf_counter() - start < seconds:
        for name, step in steps.items():
            measured[name] += [_time(step) for _ in range(calls[name])]
        rounds += 1
    return {name: Timing(seconds) for name, seconds in measured.items()}


def _time(step: Callable[[], object]) -> float:
    """Processor time of this thread, which does all the work: what other processes take is out."""
    start = time.thread_time()
    step()
    return time.thread_time() - start


def progress(message: str) -> None:
    """Tell what is being measured, apart from the results."""
    print(f"  … {message}", file=sys.stderr, flush=True)
