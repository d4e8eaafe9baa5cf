"""Ways to choose what to label next, with the budgets of each problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from lastlayer.acquisition import select

from ..harness.method import Entry, Method, Solved
from .problems import IMAGES, REVIEWS, TABLES, Model, PoolTask

COLUMNS = (*TABLES, REVIEWS, IMAGES)
CLASSES = (REVIEWS, IMAGES)
SEEDS = dict.fromkeys(COLUMNS, 10)
# Labels at random that every method begins with, those of a round, and the number of rounds.
INITIAL = dict.fromkeys(TABLES, 40) | {"power": 256, REVIEWS: 40, IMAGES: 100}
BATCH = dict.fromkeys(TABLES, 40) | {"power": 128, REVIEWS: 40, IMAGES: 50}
ROUNDS = dict.fromkeys(TABLES, 5) | {REVIEWS: 10, IMAGES: 10}


@dataclass(frozen=True, kw_only=True)
class Labelling(Method):
    """Rounds of labels that `lastlayer.acquisition.select` asks for.

    Attributes:
        acquisition: method of `select`.
        initial: number of labels at random before the first round, the same for all methods.
        batch: labels of a round.
        rounds: how many.
    """

    label: ClassVar[str] = "select"
    acquisition: str = "lcmd"
    initial: int = 40
    batch: int = 20
    rounds: int = 10

    def train(self, tasks: Sequence[PoolTask], checkpoint: Path | None = None) -> Solved:
        """For each task its scores on test data before the first and after every round."""
        return [(self._scores(task), {}) for task in tasks]

    def _scores(self, task: PoolTask) -> list[dict[str, float]]:
        inputs = task.pool[0]
        generator = torch.Generator().manual_seed(task.seed)
        order = torch.randperm(len(inputs), generator=generator)
        labelled, left = order[: self.initial], order[self.initial :].sort().values
        scores = []
        for number in range(self.rounds + 1):
            model = task.fitted(labelled)
            scores.append({"labels": len(labelled), **task.score(model)})
            if number < self.rounds:
                seed = 1000 * task.seed + number
                chosen = self.choose(model, inputs[labelled], inputs[left], seed)
                labelled = torch.cat([labelled, left[chosen]])
                kept = torch.ones(len(left), dtype=torch.bool)
                kept[chosen] = False
                left = left[kept]
        return scores

    def choose(self, model: Model, labelled: Tensor, pool: Tensor, seed: int) -> Tensor:
        """Rows of the pool to label next, (batch,)."""
        return select(
            model, labelled, pool, self.batch, self.acquisition, seed=seed, progress=False
        )


def entry(
    acquisition: str,
    label: str,
    about: str,
    columns: Sequence[str] = COLUMNS,
) -> Entry:
    """A method with the budgets of all problems."""
    return Entry(
        method=Labelling,
        label=label,
        about=about,
        settings={"acquisition": acquisition, "initial": INITIAL, "batch": BATCH, "rounds": ROUNDS},
        num_seeds={column: SEEDS[column] for column in columns},
        together=SEEDS,
    )


# With one output and the same noise everywhere, BALD and entropy rank points as variances do.
METHODS: dict[str, Entry] = {
    "lcmd": entry("lcmd", "LCMD", "The largest cluster's farthest point; the default for numbers."),
    "bait": entry("bait", "BAIT", "The least variance of predictions of the pool."),
    "batchbald": entry("batchbald", "BatchBALD", "The most information about the weights."),
    "epig": entry("epig", "EPIG", "The most information about predictions of the pool."),
    "max_variance": entry("max_variance", "top-k variance", "The largest variances, one by one."),
    "bald": entry(
        "bald", "top-k BALD", "The most information about the weights, one by one.", CLASSES
    ),
    "entropy": entry("entropy", "top-k entropy", "The most uncertain labels.", CLASSES),
    "margin": entry(
        "margin", "top-k margin", "The closest decisions; the default for classes.", (IMAGES,)
    ),
    "random": entry("random", "random", "Points at random."),
}
TOGETHER = ("lcmd", "bait", "batchbald", "epig")  # which choose a batch together
ONE_BY_ONE = ("max_variance", "bald", "entropy", "margin")
