"""The wheel bandit (Riquelme, Tucker & Snoek 2018): rare rewards at the rim of a disc.

Contexts are uniform in the unit disc. Arm 4 is safe and pays 1.2 everywhere; the others pay 1, but
beyond the radius δ each of them pays 50 in a quadrant of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .task import BanditTask

NUM_ARMS, SAFE = 5, 4
MEANS, NOISE = np.array([1.0, 1.0, 1.0, 1.0, 1.2]), 0.05
PRIZE, PRIZE_NOISE = 50.0, 0.01


@dataclass(frozen=True, kw_only=True)
class WheelTask(BanditTask):
    """A stream of contexts, and what every arm would pay for each.

    Attributes:
        delta: δ, the radius beyond which the prizes are.
    """

    delta: float

    @property
    def num_arms(self) -> int:
        """Five."""
        return NUM_ARMS

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
