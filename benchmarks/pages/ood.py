"""The tables of out-of-distribution scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.markdown import RESULTS, table
from experiments.ood.page import VARIANT, metrics
from experiments.ood.problems import PROBLEMS, TEST, VALIDATION
from lastlayer.ood import Comparison
from lastlayer.ood.comparison import DENSITY_WITH_LENGTHS, PLAIN_DENSITY


def scores() -> str:
    """AUROC of what `ood.compare` has on test data; the best of each column in bold."""
    compared = (PLAIN_DENSITY, DENSITY_WITH_LENGTHS)
    return _table(TEST, lambda name: VARIANT not in name or name in compared)


def variants() -> str:
    """AUROC of densities and nearest neighbours with several options, on validation data."""
    kinds = ("FeatureDensity", "NearestNeighbors", "RelativeMahalanobis")
    return _table(VALIDATION, lambda name: name.startswith(kinds))


def _table(split: str, is_shown: Callable[[str], bool]) -> str:
    """A row for each score, the best first, and a column for each data set."""
    columns: dict[str, dict[str, Any]] = {}
    for problem in PROBLEMS:
        found = metrics(RESULTS, problem, split)
        if found is None:
            raise SystemExit(f"no records of out-of-distribution scores on {problem}, {split}")
        for data in next(iter(found.values())):
            columns[f"{problem}: {data}"] = {score: row[data] for score, row in found.items()}
    names = [name for name in next(iter(columns.values())) if is_shown(name)]
    by_score = {name: {key: column[name] for key, column in columns.items()} for name in names}
    best = {key: max(column[name]["auroc"] for name in names) for key, column in columns.items()}
    rows = []
    for name in Comparison({}, {}, by_score, {}).ranking():
        cells = [(by_score[name][key]["auroc"], value) for key, value in best.items()]
        marked = [f"**{auroc:.3f}**" if auroc == top else f"{auroc:.3f}" for auroc, top in cells]
        rows.append([f"`{name}`", *marked])
    return table(["score", *columns], rows)
