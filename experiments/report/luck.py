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
        lines: dict[str, list[str]] = {
            title: [] for title in ("correlation", "measured", "adjusted", "paper")
        }
        for dataset, values in errors.items():
            found = runs.by_seed("vbll", dataset, metric)
            cells = [BLANK] * 3
            if set(range(count)) <= set(found):
                mine = [found[seed] for seed in range(count)]
                change = adjusted(mine, values[:count], values)
                cells = [_correlation(mine, values[:count]), show(estimate(mine)), show(change)]
            for line, cell in zip(
                lines.values(), [*cells, show(UCI["vbll", dataset, metric])], strict=True
            ):
                line.append(cell)
        rows += [[f"*VBLL, {label}*"], *([title, *line] for title, line in lines.items())]
    about = READING.format(count=count, others=record["config"]["num_others"])
    return about + "\n\n" + table(["", *map(name, errors)], rows)


def _harder(values: Sequence[float], count: int) -> str:
    """In percent of the mean over all splits, which alone is uncertain."""
    mean, stderr = estimate(values)
    change = float(np.mean(values[:count])) / mean - 1
    return f"{signed(100 * change)} ± {100 * stderr / mean:.1f}"


def _correlation(values: Sequence[float], errors: Sequence[float]) -> str:
    with np.errstate(invalid="ignore"):
        return signed(float(np.corrcoef(values, errors)[0, 1]), 2).removeprefix("+")
