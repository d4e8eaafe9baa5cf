"""Pest control (Oh et al. 2019): a pesticide, or none, at each of 25 stages.

Pests spread at random and a pesticide kills a random fraction of them. With every use it loses
effect and gets cheaper. The cost is what was paid, and how likely pests were above a threshold.

`python -m experiments.bayesopt.pests` records the lowest cost that local search finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..harness import records

NUM_SEARCHES = 4
RECORDED = Path("results/bayesopt/pests-optimum.jsonl")

NUM_STAGES, NUM_CHOICES = 25, 5  # of which the first is to do nothing
NUM_SIMULATIONS, THRESHOLD = 100, 0.1
PRICE = np.array([0.0, 1.0, 0.8, 0.7, 0.5])
MAX_DISCOUNT = np.array([0.0, 0.2, 0.3, 0.3, 0.0])
RESISTANCE = np.array([0.0, 1.0, 2.5, 2.0, 0.5]) / 7  # that a use at every stage would add
EFFECT = np.array([0.0, 2.0, 3.0, 3.0, 5.0]) / 7  # Beta(1, effect) is the fraction killed


def cost(choices: np.ndarray) -> float:
    """The cost of a sequence of choices, the same whenever it is asked."""
    random = np.random.default_rng(0)
    effect = EFFECT.copy()
    pests = random.beta(1.0, 30.0, NUM_SIMULATIONS)
    uses = np.bincount(choices, minlength=NUM_CHOICES)
    discount = 1 - MAX_DISCOUNT * uses / NUM_STAGES
    total = float((PRICE * discount)[choices].sum())
    for choice in choices:
        # Both are always drawn, so that choices do not change the fate of other stages.
        spread, quantile = random.beta(1.0, 17 / 3, NUM_SIMULATIONS), random.random(NUM_SIMULATIONS)
        total += float((pests > THRESHOLD).mean())
        if choice == 0:
            pests = pests + spread * (1 - pests)
        else:
            killed = 1 - quantile ** (1 / effect[choice])  # Beta(1, b) by its quantiles
            pests = (1 - killed) * pests
            effect[choice] += RESISTANCE[choice] / NUM_STAGES
    return total


def pest_control(points: Tensor) -> Tensor:
    """Minus the cost of points in the unit cube, which is cut into five equal parts, (n, 1)."""
    choices = (points * NUM_CHOICES).floor().clamp(max=NUM_CHOICES - 1).long().numpy()
    return torch.tensor([[-cost(row)] for row in choices], dtype=points.dtype)


def local_optimum(seed: int) -> float:
    """The cost at which no change of one choice and no exchange of two lowers it any more."""
    random = np.random.default_rng(seed)
    choices = random.integers(NUM_CHOICES, size=NUM_STAGES)
    lowest, before = cost(choices), np.inf
    while lowest < before:
        before = lowest
        for other in _neighbours(choices):
            if (value := cost(other)) < lowest - 1e-12:
                choices, lowest = other, value
                break
    return lowest


def _neighbours(choices: np.ndarray) -> Iterator[np.ndarray]:
    """Sequences that differ in one choice, and in the order of two."""
    for stage in range(NUM_STAGES):
        for choice in range(NUM_CHOICES):
            other = choices.copy()
            other[stage] = choice
            yield other
        for later in range(stage + 1, NUM_STAGES):
            other = choices.copy()
            other[[stage, later]] = other[[later, stage]]
            yield other


def main(path: Path = RECORDED) -> None:
    """Record local searches that have no record."""
    known = {run["config"]["seed"] for run in records.read(path, ("seed",))}
    for seed in set(range(NUM_SEARCHES)) - known:
        metrics = {"lowest": round(local_optimum(seed), 6)}
        about = {"versions": records.versions(("numpy",)), "time": records.now()}
        records.append(path, [{"config": {"seed": seed}, "metrics": metrics, **about}])


if __name__ == "__main__":
    main()
