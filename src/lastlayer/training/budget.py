"""The time that a search may take."""

from __future__ import annotations

import math
import time

from .search import Problem, Setting, Try

SEARCHED = 0.6  # of the time, for the first try; the rest is for training on all the data


class Budget:
    """How long a search may go on, by how long its epochs took so far.

    Args:
        seconds: of the whole search; None for no end.
    """

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not 0 < seconds < math.inf:
            raise ValueError(f"time_limit must be a positive number of seconds, got {seconds!r}")
        now = time.monotonic()
        self.limited = seconds is not None
        self.end = math.inf if seconds is None else now + seconds
        self.first_end = math.inf if seconds is None else now + SEARCHED * seconds
        self.per_epoch = 0.0  # seconds of the slowest epoch of a try
        self.exhausted = False

    def deadline(self, tries: list[Try]) -> float:
        """When a training that begins now must stop, in the seconds of `time.monotonic`."""
        return self.end if tries else self.first_end

    def took(self, setting: Setting, seconds: float) -> None:
        """Note how long a try took."""
        self.per_epoch = max(self.per_epoch, seconds / setting.epochs)

    def allows(self, problem: Problem) -> bool:
        """Whether there is time for what a problem wants next, and for the whole data then."""
        if not problem.tries or not self.limited:
            return True
        assert problem.wants is not None
        epochs = problem.settings[problem.wants].epochs
        self.exhausted = not self._in_time(epochs + self._whole(problem, epochs))
        return not self.exhausted

    def leaves_all_data(self, problem: Problem) -> bool:
        """Whether there is time to train on all the data with the best setting."""
        if not self.limited:
            return True
        enough = self._in_time(self._whole(problem, problem.best.setting.epochs))
        self.exhausted = self.exhausted or not enough
        return enough

    def _whole(self, problem: Problem, epochs: int) -> float:
        """Epochs on all the data, in epochs of a fold's."""
        return epochs * len(problem.data[0]) / len(problem.folds[0].train[0])

    def _in_time(self, epochs: float) -> bool:
        return time.monotonic() + self.per_epoch * epochs <= self.end
