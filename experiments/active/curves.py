"""Curves of scores by the number of labels, and what they say: gains over others, labels saved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..harness.statistics import Estimate, Metric, Runs, estimate


def curves(runs: Runs, method: str, column: str, name: str) -> dict[int, np.ndarray]:
    """The curve of each seed, (rounds + 1,)."""
    records = runs.records(method, column)
    return {run["config"]["seed"]: np.array(run["metrics"][name]) for run in records}


def budgets(runs: Runs, method: str, column: str) -> np.ndarray:
    """Numbers of labels, (rounds + 1,)."""
    return next(iter(curves(runs, method, column, "labels").values()))


def gains(runs: Runs, method: str, than: str, column: str, metric: Metric) -> list[Estimate]:
    """At each budget beyond the first, how much lower the score is than another's.

    Over the seeds that both have; empty if there are none.
    """
    mine, others = (curves(runs, name, column, metric.name) for name in (method, than))
    shared = sorted(set(mine) & set(others))
    if not shared:
        return []
    differences = np.array([others[seed] - mine[seed] for seed in shared])  # (seeds, rounds + 1)
    return [estimate(values) for values in differences.T[1:]]


def initial_spread(runs: Runs, column: str, metric: Metric) -> float:
    """The largest difference between methods with the same seed and the same initial labels."""
    first: dict[int, list[float]] = {}
    for method in runs.methods:
        for seed, curve in curves(runs, method, column, metric.name).items():
            first.setdefault(seed, []).append(float(curve[0]))
    return max((max(values) - min(values) for values in first.values()), default=0.0)


class Counts(NamedTuple):
    """Budgets at which a method is better than another, of all, and those beyond two errors."""

    better: int
    total: int
    surely_better: int
    surely_worse: int


def counts(
    runs: Runs, method: str, than: str, columns: Iterable[str], metrics: Iterable[Metric]
) -> Counts:
    """Comparison by mean over seeds, in all problems, metrics and budgets beyond the first."""
    metrics = list(metrics)
    found = [g for c in columns for metric in metrics for g in gains(runs, method, than, c, metric)]
    return Counts(
        sum(gain.mean > 0 for gain in found),
        len(found),
        sum(gain.mean > 2 * gain.stderr for gain in found),
        sum(gain.mean < -2 * gain.stderr for gain in found),
    )


def saved(runs: Runs, method: str, column: str, metric: Metric, than: str) -> float | None:
    """The fraction of labels saved to reach another's final score; None without records.

    Of mean curves, over the seeds that both have, linear between budgets. A curve that does not
    come down to that score saves nothing, 0.
    """
    mine, others = (curves(runs, name, column, metric.name) for name in (method, than))
    shared = sorted(set(mine) & set(others))
    if not shared:
        return None
    labels = budgets(runs, method, column)
    mean = np.mean([mine[seed] for seed in shared], 0)
    goal = np.mean([others[seed] for seed in shared], 0)[-1]
    return 1 - reached(labels, mean, goal) / labels[-1]


def reached(labels: np.ndarray, mean: np.ndarray, goal: float) -> float:
    """The number of labels at which a curve first comes down to a score; the last if never."""
    below = np.flatnonzero(mean <= goal)
    if not len(below):
        return float(labels[-1])
    last = int(below[0])
    if last == 0:
        return float(labels[0])
    share = (mean[last - 1] - goal) / (mean[last - 1] - mean[last])
    return float(labels[last - 1] + share * (labels[last] - labels[last - 1]))
