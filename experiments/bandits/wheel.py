"""The wheel bandit (Riquelme, Tucker & Snoek 2018): rare rewards at the rim of a disc.

Contexts are uniform in the unit disc. Arm 4 is safe and pays 1.2 everywhere; the others pay 1, but
beyond the radius δ each of them pays 50 in a quadrant of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..harness.statistics import Metric
from ..harness.task import Task

NUM_ARMS, SAFE = 5, 4
MEANS, NOISE = np.array([1.0, 1.0, 1.0, 1.0, 1.2]), 0.05
PRIZE, PRIZE_NOISE = 50.0, 0.01
LAST = 500  # contexts of the simple regret
NUM_POINTS = 40  # of a curve, evenly spaced in the logarithm

CUMULATIVE = Metric("cumulative_regret", "cumulative regret", 2)
SIMPLE = Metric("simple_regret", "simple regret", 2)
METRICS = (CUMULATIVE, SIMPLE)


@dataclass(frozen=True, kw_only=True)
class WheelTask(Task):
    """A stream of contexts, and what every arm would pay for each.

    Attributes:
        delta: δ, the radius beyond which the prizes are.
        num_contexts: T.
    """

    delta: float
    num_contexts: int

    @cached_property
    def _drawn(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Contexts (T, 2), rewards (T, 5) and the best arm of each context, (T,)."""
        random = np.random.default_rng(self.seed)
        contexts = np.empty((0, 2))
        while len(contexts) < self.num_contexts:
            square = random.uniform(-1, 1, (self.num_contexts, 2))
            contexts = np.concatenate([contexts, square[np.square(square).sum(-1) <= 1]])
        contexts = contexts[: self.num_contexts]
        rewards = random.normal(MEANS, NOISE, (self.num_contexts, NUM_ARMS))
        outside = np.hypot(*contexts.T) >= self.delta
        right, upper = contexts.T > 0
        quadrant = np.where(right, np.where(upper, 0, 1), np.where(upper, 2, 3))
        prizes = random.normal(PRIZE, PRIZE_NOISE, self.num_contexts)
        rewards[outside, quadrant[outside]] = prizes[outside]
        return contexts, rewards, np.where(outside, quadrant, SAFE)

    @property
    def contexts(self) -> np.ndarray:
        """(T, 2)."""
        return self._drawn[0]

    @property
    def rewards(self) -> np.ndarray:
        """Of every arm, (T, 5)."""
        return self._drawn[1]

    def regrets(self, arms: np.ndarray) -> np.ndarray:
        """What the best arm of each context paid more than the arm pulled, (T,)."""
        rows = np.arange(len(arms))
        return self.rewards[rows, self._drawn[2][: len(arms)]] - self.rewards[rows, arms]

    @property
    def uniform_regret(self) -> float:
        """The expected regret of an arm at random, per context."""
        inside = self.delta**2
        return float(
            inside * (MEANS[SAFE] - MEANS.mean())
            + (1 - inside) * (PRIZE - (PRIZE + MEANS[:SAFE].sum() - 1 + MEANS[SAFE]) / NUM_ARMS)
        )

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
