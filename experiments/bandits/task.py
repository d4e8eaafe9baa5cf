"""What all bandits share: a stream of contexts, the rewards of every arm, and regrets."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..harness.statistics import Metric
from ..harness.task import Task

LAST = 500  # contexts of the simple regret
NUM_POINTS = 40  # of a curve, evenly spaced in the logarithm

CUMULATIVE = Metric("cumulative_regret", "cumulative regret", 2)
SIMPLE = Metric("simple_regret", "simple regret", 2)
METRICS = (CUMULATIVE, SIMPLE)


@dataclass(frozen=True, kw_only=True)
class BanditTask(Task):
    """A stream of contexts, and what every arm would pay for each.

    Attributes:
        num_contexts: T.
    """

    num_contexts: int

    @property
    @abstractmethod
    def num_arms(self) -> int:
        """K."""

    @property
    @abstractmethod
    def contexts(self) -> np.ndarray:
        """(T, inputs)."""

    @property
    @abstractmethod
    def rewards(self) -> np.ndarray:
        """Of every arm, (T, arms)."""

    @abstractmethod
    def regrets(self, arms: np.ndarray) -> np.ndarray:
        """How much more the best arm of each context pays than the arm pulled, (T,)."""

    @property
    @abstractmethod
    def uniform_regret(self) -> float:
        """The expected regret of an arm at random, per context."""

    def evaluate(self, model: Any) -> dict[str, Any]:
        """Regrets of the arms pulled, (T,), in percent of an arm at random, and their curve."""
        regrets = 100 * self.regrets(model) / self.uniform_regret
        cumulative = regrets.cumsum() / np.arange(1, len(regrets) + 1)
        ends = curve_points(len(regrets))
        return {
            CUMULATIVE.name: float(regrets.mean()),
            SIMPLE.name: float(regrets[-LAST:].mean()),
            "curve": [round(float(cumulative[end - 1]), 4) for end in ends],
        }


def curve_points(num_contexts: int) -> list[int]:
    """Numbers of contexts at which a curve has its points."""
    points = np.geomspace(min(20, num_contexts), num_contexts, NUM_POINTS).round().astype(int)
    return sorted(set(points.tolist()))
