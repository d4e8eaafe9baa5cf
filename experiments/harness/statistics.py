"""Means, standard errors, marks and differences; and all records of an experiment, by cell."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .jobs import Experiment
from .records import Record

OUTLIER = 3.0  # robust standard deviations above the median
ROBUST = 1.4826  # median absolute deviations in a standard deviation of Gaussian data

Cell = tuple[str, str, str]  # method, column, metric


class Estimate(NamedTuple):
    """A mean over seeds and its standard error."""

    mean: float
    stderr: float


@dataclass(frozen=True)
class Metric:
    """A number in records, and how tables show it."""

    name: str
    label: str
    digits: int = 2
    scale: float = 1.0  # 100 for percent
    higher_is_better: bool = False


@dataclass(frozen=True)
class Published:
    """Another's figures in the printed digits, and cells that look like misprints, with why.

    Misprints are shown, but neither marked as best nor compared.
    """

    cells: Mapping[Cell, Estimate]
    suspect: Mapping[Cell, str] = field(default_factory=dict)

    @property
    def certain(self) -> dict[Cell, Estimate]:
        """All cells but suspected misprints."""
        return {key: cell for key, cell in self.cells.items() if key not in self.suspect}


class Description(NamedTuple):
    """What an experiment says about a method; of one it does not know, only the name."""

    label: str
    single_pass: bool | None = None
    num_seeds: Mapping[str, int] = {}  # by column
    variant_of: str | None = None


@dataclass(frozen=True)
class Runs:
    """All records by (method, column), in the order of seeds, and the methods in table order."""

    by_cell: dict[tuple[str, str], list[Record]]
    methods: dict[str, Description]
    columns: tuple[str, ...]

    @classmethod
    def load(cls, experiment: Experiment, results: Path) -> Runs:
        """Read all records; a method that the experiment does not know comes last."""
        methods = {
            name: Description(
                entry.title, entry.method.single_pass, entry.num_seeds, entry.variant_of
            )
            for name, entry in experiment.entries.items()
        }
        starts = {f"{about['dataset']}-" for about in experiment.columns.values()}
        for path in sorted((results / experiment.name).glob("*.jsonl")):
            for start in starts:
                if path.stem.startswith(start):
                    method = path.stem.removeprefix(start)
                    methods.setdefault(method, Description(f"`{method}`"))
        cells = ((method, column) for method in methods for column in experiment.columns)
        found = {cell: experiment.read(results, cell[1], cell[0]) for cell in cells}
        by_cell = {cell: records for cell, records in found.items() if records}
        return cls(by_cell, methods, tuple(experiment.columns))

    @property
    def main(self) -> list[str]:
        """Methods that are no variants of another."""
        return [name for name, about in self.methods.items() if about.variant_of is None]

    def variants(self, *names: str) -> list[str]:
        """Variants of some methods."""
        return [name for name, about in self.methods.items() if about.variant_of in names]

    def has(self, method: str) -> bool:
        """Whether there is any record of a method."""
        return any(method == name for name, _ in self.by_cell)

    def records(self, method: str, column: str) -> list[Record]:
        """The records of a cell."""
        return self.by_cell.get((method, column), [])

    def by_seed(self, method: str, column: str, metric: str) -> dict[int, float]:
        """A metric of each seed; what a run did not record is NaN."""
        found = {}
        for run in self.records(method, column):
            value = run["metrics"].get(metric)
            found[run["config"]["seed"]] = math.nan if value is None else float(value)
        return found

    def values(self, method: str, column: str, metric: str) -> np.ndarray:
        """A metric of all seeds, (num_seeds,)."""
        return np.array(list(self.by_seed(method, column, metric).values()))

    def estimate(self, method: str, column: str, metric: str) -> Estimate | None:
        """Mean and standard error of a metric; None without records."""
        values = self.values(method, column, metric)
        return estimate(values) if len(values) else None

    def missing(self) -> dict[str, dict[str, list[int]]]:
        """Seeds without a record, by method and column."""
        absent: dict[str, dict[str, list[int]]] = {}
        for method, about in self.methods.items():
            for column, count in about.num_seeds.items():
                found = {run["config"]["seed"] for run in self.records(method, column)}
                if seeds := set(range(count)) - found:
                    absent.setdefault(method, {})[column] = sorted(seeds)
        return absent

    def outliers(self, method: str, column: str, metric: str) -> dict[int, float]:
        """Seeds with a value far above the median, or none at all."""
        values = self.by_seed(method, column, metric)
        numbers = np.array(list(values.values()))
        finite = numbers[np.isfinite(numbers)]
        if not len(finite):
            return values
        middle = np.median(finite)
        limit = middle + OUTLIER * ROBUST * np.median(abs(finite - middle))
        return {seed: value for seed, value in values.items() if not value <= limit}


def estimate(values: Sequence[float] | np.ndarray) -> Estimate:
    """Mean and standard error, with n − 1; one value has no standard error, NaN spreads."""
    mean = float(np.mean(values))
    if len(values) < 2 or not math.isfinite(mean):
        return Estimate(mean, math.nan)
    return Estimate(mean, float(np.std(values, ddof=1)) / math.sqrt(len(values)))


def change(before: Mapping[int, float], after: Mapping[int, float]) -> Estimate | None:
    """Mean difference over the seeds that both have, whose data are the same; None without any."""
    shared = sorted(set(before) & set(after))
    return estimate([after[seed] - before[seed] for seed in shared]) if shared else None


def marked(
    cells: Mapping[str, Estimate],
    single_pass: Collection[str],
    digits: int,
    higher_is_better: bool = False,
) -> set[str]:
    """Which methods of a column the paper would print bold, in the digits that are printed.

    The best mean and those less than a standard error (of the best) behind it: among single-pass
    methods, and among multi-pass methods unless a single-pass one is better than all of them.
    """
    sign = -1 if higher_is_better else 1
    printed = {
        name: Estimate(
            round(sign * mean, digits), 0.0 if math.isnan(stderr) else round(stderr, digits)
        )
        for name, (mean, stderr) in cells.items()
        if math.isfinite(mean)
    }
    groups = [
        {name: cell for name, cell in printed.items() if (name in single_pass) == flag}
        for flag in (True, False)
    ]
    best = [min(group.values(), default=Estimate(math.inf, 0.0)) for group in groups]
    if best[0].mean < best[1].mean:
        groups[1] = {}
    close = 0.5 * 10.0**-digits  # the printed digits decide, not their binary representation
    return {
        name
        for group, lowest in zip(groups, best, strict=True)
        for name, cell in group.items()
        if cell.mean - lowest.mean < max(lowest.stderr - close, close)
    }


def gain(runs: Runs, method: str, column: str, metric: Metric, than: str) -> Estimate | None:
    """How much better a method is than another, on the seeds that both have; above zero is better.

    None without such seeds.
    """
    sign = 1.0 if metric.higher_is_better else -1.0
    before, after = (
        {seed: sign * value for seed, value in runs.by_seed(name, column, metric.name).items()}
        for name in (than, method)
    )
    return change(before, after)


class Difference(NamedTuple):
    """Measured minus published: as it is, in the published standard errors, in combined ones."""

    value: float
    in_published: float
    in_combined: float


def difference(measured: Estimate, published: Estimate) -> Difference:
    """The difference of two means; combined standard errors are √(a² + b²)."""
    value = measured.mean - published.mean
    combined = math.hypot(measured.stderr, published.stderr)
    return Difference(value, _ratio(value, published.stderr), _ratio(value, combined))


def _ratio(value: float, unit: float) -> float:
    return value / unit if unit else math.copysign(math.inf, value)


def differences(runs: Runs, published: Published) -> dict[Cell, Difference]:
    """Differences from published figures in all cells that both have, but suspected misprints."""
    found = {}
    for (method, column, metric), cell in published.certain.items():
        measured = runs.estimate(method, column, metric) if method in runs.methods else None
        if measured is not None:
            found[method, column, metric] = difference(measured, cell)
    return found
