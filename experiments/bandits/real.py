"""Bandits made of real tables with classes, as Riquelme, Tucker & Snoek (2018) make theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn import datasets

from .task import BanditTask

GOOD, BAD = 5.0, -35.0  # of the second arm: always for a good row, one time in two for a bad one


def labels(classes: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """An arm for each class, which pays 1 if it is the row's: mean and realised rewards, (T, K)."""
    paid = np.eye(int(classes.max()) + 1)[classes]
    return paid, paid


def risk(good: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """An arm that pays nothing, and one that is for good rows alone, as that of the mushrooms."""
    lucky = random.random(len(good)) < 0.5
    mean = np.where(good == 1, GOOD, 0.5 * (GOOD + BAD))
    paid = np.where((good == 1) | lucky, GOOD, BAD)
    nothing = np.zeros(len(good))
    return np.stack([nothing, mean], 1), np.stack([nothing, paid], 1)


@dataclass(frozen=True)
class Table:
    """A table, and how its classes pay.

    Attributes:
        load: from `return_X_y=True` to inputs and classes.
        pays: from classes and random numbers to mean and realised rewards of every arm.
        num_arms: K.
        scale: the largest absolute reward.
    """

    load: Callable[..., Any]
    pays: Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]
    num_arms: int
    scale: float


TABLES = {
    "digits": Table(datasets.load_digits, labels, 10, 1.0),
    "cancer": Table(datasets.load_breast_cancer, risk, 2, -BAD),
}


@dataclass(frozen=True, kw_only=True)
class TableTask(BanditTask):
    """The rows of a table in random order, again and again until there are enough.

    Attributes:
        table: its name.
    """

    table: str

    @property
    def num_arms(self) -> int:
        """K."""
        return TABLES[self.table].num_arms

    @cached_property
    def _drawn(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Contexts (T, inputs), mean and realised rewards, (T, K) each."""
        random = np.random.default_rng(self.seed)
        table = TABLES[self.table]
        inputs, classes = table.load(return_X_y=True)
        spread = inputs.std(0)
        inputs = (inputs - inputs.mean(0)) / np.where(spread == 0, 1.0, spread)
        passes = -(-self.num_contexts // len(classes))
        rows = np.concatenate([random.permutation(len(classes)) for _ in range(passes)])
        rows = rows[: self.num_contexts]
        return inputs[rows], *table.pays(classes[rows], random)

    @property
    def contexts(self) -> np.ndarray:
        """(T, inputs), standardised."""
        return self._drawn[0]

    @property
    def rewards(self) -> np.ndarray:
        """Of every arm, (T, K)."""
        return self._drawn[2]

    def regrets(self, arms: np.ndarray) -> np.ndarray:
        """How much higher the mean reward of the best arm is than that of the arm pulled, (T,)."""
        mean = self._drawn[1][: len(arms)]
        return mean.max(-1) - mean[np.arange(len(arms)), arms]

    @property
    def uniform_regret(self) -> float:
        """The expected regret of an arm at random, per context."""
        mean = self._drawn[1]
        return float((mean.max(-1) - mean.mean(-1)).mean())
