"""Luck of the splits: how hard they are for trees, and what that makes of VBLL's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..published import UCI
from .comparison import METRICS
from .markdown import BLANK, name, show, signed, table
from .statistics import Runs, adjusted, estimate

READING = """\
Random splits differ in difficulty. Boosted trees were trained on the {count} splits of the tables
and on {others} others (`python -m experiments splits`); "harder by" says how far their mean RMSE on
ours is above that on all of them. Where VBLL errs on the same splits as the trees do (a correlation
near one), its mean can be corrected to splits of average difficulty, by linear regression on the
trees' RMSE: "adjusted", with its standard error. The paper's splits are not known. Adjusted results
are in no other table, and nothing was chosen by them. On Yacht a few splits decide the slope."""


def luck(runs: Runs, record: Mapping[str, Any]) -> str:
    """Difficulty by data set, and VBLL as measured, adjusted for it, and in the paper.

    Args:
        runs: all records.
        record: of `experiments.splits`.
    """
    count, errors = record["config"]["num_seeds"], record["rmse"]
    rows = [
        ["*trees*"],
        ["our splits", *(f"{np.mean(values[:count]):.3f}" for values in errors.values())],
        ["all splits", *(show(estimate(values), 3) for values in errors.values())],
        ["harder by, percent", *(_harder(values, count) for values in errors.values())],
    ]
    for metric, label in METRICS.items():
        columns = [
            _column(runs.by_seed("vbll", dataset, metric), values, count)
            for dataset, values in errors.items()
        ]
        titles = ("correlation", "measured", "adjusted")
        rows += [
            [f"*VBLL, {label}*"],
            *([title, *cells] for title, *cells in zip(titles, *columns, strict=True)),
            ["paper", *(show(UCI["vbll", dataset, metric]) for dataset in errors)],
        ]
    about = READING.format(count=count, others=record["config"]["num_others"])
    return about + "\n\n" + table(["", *map(name, errors)], rows)


def _harder(values: Sequence[float], count: int) -> str:
    """In percent of the mean over all splits, which alone is uncertain."""
    mean, stderr = estimate(values)
    change = float(np.mean(values[:count])) / mean - 1
    return f"{signed(100 * change)} ± {100 * stderr / mean:.1f}"


def _column(found: Mapping[int, float], values: Sequence[float], count: int) -> list[str]:
    """Correlation with the trees' errors, measured and adjusted mean, if no seed is missing."""
    if not set(range(count)) <= set(found):
        return [BLANK] * 3
    mine, theirs = [found[seed] for seed in range(count)], values[:count]
    with np.errstate(invalid="ignore"):
        correlation = float(np.corrcoef(mine, theirs)[0, 1])
    change = adjusted(mine, theirs, values)
    return [signed(correlation, 2).removeprefix("+"), show(estimate(mine)), show(change)]
