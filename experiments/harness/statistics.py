"""Records of runs, and the statistics that are reported of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import records
from ..published import SUSPECT, UCI, Estimate

if TYPE_CHECKING:
    from ..method import Method

# Keys of variants begin so: of our configuration, and of those of the paper.
ABLATION, PAPER_VARIANTS = "ours-", ("vbll-", "vbll_bbb-")
OUTLIER = 3.0  # robust standard deviations above the median
ROBUST = 1.4826  # median absolute deviations in a standard deviation of Gaussian data


class Description(NamedTuple):
    """What the registry says about a method; of one it does not know, only the key."""

    label: str
    single_pass: bool | None = None
    num_seeds: Mapping[str, int] = {}  # by data set


@dataclass(frozen=True)
class Runs:
    """All records by (method, data set), in the order of seeds, and the methods in table order."""

    by_cell: dict[tuple[str, str], list[records.Record]]
    methods: dict[str, Description]

    @classmethod
    def load(cls, folder: Path, registry: Mapping[str, type[Method]]) -> Runs:
        """Read `folder`/*.jsonl; what the registry does not know is listed last, by its key."""
        found: dict[tuple[str, str], list[records.Record]] = {}
        for path in sorted(folder.glob("*.jsonl")):
            for record in records.read(path):
                key = record["config"]["method"], record["config"]["dataset"]
                found.setdefault(key, []).append(record)
        methods = {
            key: Description(method.label, method.single_pass, method.planned_seeds())
            for key, method in registry.items()
        }
        unknown = sorted({method for method, _ in found} - set(methods))
        return cls(found, methods | {key: Description(f"`{key}`") for key in unknown})

    @property
    def main(self) -> list[str]:
        """Methods that are no variants of another."""
        return [key for key in self.methods if not key.startswith((ABLATION, *PAPER_VARIANTS))]

    def has(self, method: str) -> bool:
        """Whether there is any record of a method."""
        return any(method == key for key, _ in self.by_cell)

    def by_seed(self, method: str, dataset: str, metric: str) -> dict[int, float]:
        """A metric of each seed; what a run did not record is NaN."""
        found = {}
        for run in self.by_cell.get((method, dataset), []):
            value = run["metrics"].get(metric)
            found[run["config"]["seed"]] = math.nan if value is None else float(value)
        return found

    def values(self, method: str, dataset: str, metric: str) -> np.ndarray:
        """A metric of all seeds, (num_seeds,)."""
        return np.array(list(self.by_seed(method, dataset, metric).values()))

    def estimate(self, method: str, dataset: str, metric: str) -> Estimate | None:
        """Mean and standard error of a metric; None without records."""
        values = self.values(method, dataset, metric)
        return estimate(values) if len(values) else None

    def missing(self) -> dict[str, dict[str, list[int]]]:
        """Seeds without a record, by method and data set."""
        absent: dict[str, dict[str, list[int]]] = {}
        for method, description in self.methods.items():
            for dataset, count in description.num_seeds.items():
                seeds = set(range(count)) - set(self.by_seed(method, dataset, "nll"))
                if seeds:
                    absent.setdefault(method, {})[dataset] = sorted(seeds)
        return absent

    def outliers(self, method: str, dataset: str) -> dict[int, float]:
        """Seeds with an NLL far above the median, or none at all."""
        values = self.by_seed(method, dataset, "nll")
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


def adjusted(
    values: Sequence[float] | np.ndarray,
    covariate: Sequence[float] | np.ndarray,
    population: Sequence[float] | np.ndarray,
) -> Estimate:
    """The mean that values would have if their covariate had the population's: by regression.

    The standard error holds the residuals, the slope, and how well the population's mean is known
    (for values at random from the population). There is none of fewer than three values, or of
    some that are not finite.
    """
    x, y = np.array(covariate), np.array(values)
    if len(y) < 3 or not np.isfinite(y).all():
        return Estimate(math.nan, math.nan)
    target, centred = estimate(population), x - x.mean()
    slope = centred @ y / (centred @ centred)
    shift = target.mean - x.mean()
    residuals = y - y.mean() - slope * centred
    noise = residuals @ residuals / (len(y) - 2)
    variance = noise * (1 / len(y) + shift**2 / (centred @ centred)) + (slope * target.stderr) ** 2
    return Estimate(float(y.mean() + slope * shift), math.sqrt(variance))


def marked(cells: Mapping[str, Estimate], single_pass: Collection[str], digits: int) -> set[str]:
    """Which methods of a column the paper would print bold, in the digits that are printed.

    Those with the lowest mean and those less than a standard error (of the lowest) above it:
    among single-pass methods, and among multi-pass methods unless a single-pass one is better than
    all of them. So follow all marks of the paper's UCI tables but one (Ensemble on Concrete, RMSE,
    is 0.10 above a best of 4.45 ± 0.11 and not bold).
    """
    printed = {
        key: Estimate(round(mean, digits), 0.0 if math.isnan(stderr) else round(stderr, digits))
        for key, (mean, stderr) in cells.items()
        if math.isfinite(mean)
    }
    groups = [
        {key: cell for key, cell in printed.items() if (key in single_pass) == flag}
        for flag in (True, False)
    ]
    best = [min(group.values(), default=Estimate(math.inf, 0.0)) for group in groups]
    if best[0].mean < best[1].mean:
        groups[1] = {}
    close = 0.5 * 10.0**-digits  # the printed digits decide, not their binary representation
    return {
        key
        for group, lowest in zip(groups, best, strict=True)
        for key, cell in group.items()
        if cell.mean - lowest.mean < max(lowest.stderr - close, close)
    }


class Difference(NamedTuple):
    """Ours minus the paper's: as it is, in the paper's standard errors, and in combined ones."""

    value: float
    in_paper: float
    in_combined: float


def difference(ours: Estimate, paper: Estimate) -> Difference:
    """Of two means; combined standard errors are √(a² + b²)."""
    value = ours.mean - paper.mean
    combined = math.hypot(ours.stderr, paper.stderr)
    return Difference(value, _ratio(value, paper.stderr), _ratio(value, combined))


def _ratio(value: float, unit: float) -> float:
    return value / unit if unit else math.copysign(math.inf, value)


def comparable(runs: Runs, methods: Iterable[str]) -> dict[tuple[str, str, str], Difference]:
    """Differences from the paper in all cells that both have, but suspected misprints."""
    found = {}
    for method, dataset, metric in UCI:
        ours = runs.estimate(method, dataset, metric) if method in methods else None
        if ours is not None and (method, dataset, metric) not in SUSPECT:
            found[method, dataset, metric] = difference(ours, UCI[method, dataset, metric])
    return found
