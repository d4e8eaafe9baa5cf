"""Luck of the splits: how hard they are for trees, and what that makes of VBLL's results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from ..published import UCI
from .comparison import METRICS
from .markdown import name, show, signed, table
from .statistics import Runs, adjusted, estimate

READING = """\
Written by `python -m experiments splits`: RMSE of boosted trees on the {count} splits of the tables
and on {others} others. Above zero, ours are harder than others; the paper's are not known. VBLL's
results follow the trees' from split to split (the correlation of both), so they can be adjusted to
what they would be if the trees had the mean of the others: by linear regression, whose standard
error is given. Adjusted results are not in the other tables, and no choice was made by them."""


def luck(runs: Runs, record: Mapping[str, Any]) -> str:
    """Difficulty by data set, and VBLL as measured, adjusted for it, and in the paper.

    Args:
        runs: all records.
        record: of `experiments.splits`.
    """
    count = record["config"]["num_seeds"]
    parts = {d: (errors[:count], errors[count:]) for d, errors in record["rmse"].items()}
    rows = [["*trees*"]]
    for label, at in (("our splits", 0), ("others", 1)):
        rows.append([label, *(show(estimate(part[at]), 3) for part in parts.values())])
    rows.append(["harder by, percent", *(_percent(*part) for part in parts.values())])
    seeds = range(count)
    for metric, label in METRICS.items():
        by_seed = {dataset: runs.by_seed("vbll", dataset, metric) for dataset in parts}
        if not all(set(seeds) <= set(found) for found in by_seed.values()):
            continue
        values = {dataset: [found[seed] for seed in seeds] for dataset, found in by_seed.items()}
        rows += [
            [f"*VBLL, {label}*"],
            ["correlation", *(_correlation(values[d], parts[d][0]) for d in parts)],
            ["measured", *(show(estimate(values[d])) for d in parts)],
            ["adjusted", *(show(adjusted(values[d], *parts[d])) for d in parts)],
            ["paper", *(show(UCI["vbll", d, metric]) for d in parts)],
        ]
    about = READING.format(count=count, others=record["config"]["num_others"])
    return about + "\n\n" + table(["", *map(name, parts)], rows)


def _percent(here: list[float], others: list[float]) -> str:
    first, second = estimate(here), estimate(others)
    stderr = math.hypot(first.stderr, second.stderr)
    scale = 100 / second.mean
    return f"{signed(scale * (first.mean - second.mean))} ± {scale * stderr:.1f}"


def _correlation(values: list[float], errors: list[float]) -> str:
    return f"{statistics.correlation(values, errors):.2f}"
