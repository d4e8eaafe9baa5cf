"""How far our configuration gets beyond the paper's, and what its parts are worth."""

from __future__ import annotations

from ..harness.sections import change_row
from ..harness.statistics import Estimate, Runs
from ..harness.tables import BLANK, show, show_change, signed, table, title
from .comparison import METRICS
from .published import PUBLISHED
from .variants import ALTERNATIVES

RIVALS = {"vbll": "VBLL", "gp": "RBF GP"}

ABLATION = """\
Change from our configuration on the same seeds ± its standard error; above zero, the variant is
worse; bold is beyond two standard errors."""


def _duels(runs: Runs) -> dict[tuple[str, str], dict[str, float]]:
    """Printed difference of our configuration from each rival's, by (metric, rival), data set."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for metric in METRICS:
        for rival, label in RIVALS.items():
            for source in ("the paper's", "measured"):
                row = found.setdefault((metric, f"{source} {label}"), {})
                for dataset in runs.columns:
                    mine = runs.estimate("ours", dataset, metric)
                    other: Estimate | None = PUBLISHED.cells[rival, dataset, metric]
                    if source == "measured":
                        other = runs.estimate(rival, dataset, metric)
                    if mine and other:
                        row[dataset] = round(round(mine.mean, 2) - round(other.mean, 2), 2)
    return found


def headline(runs: Runs) -> str:
    """In how many cells our configuration is better than its rivals."""
    wins: dict[str, int] = {}
    for (_, rival), row in _duels(runs).items():
        wins[rival] = wins.get(rival, 0) + sum(value < 0 for value in row.values())
    counts = [f"{rival} in {count}" for rival, count in wins.items()]
    cells = [runs.estimate("ours", d, metric) for d in runs.columns for metric in METRICS]
    absent = cells.count(None)
    rest = f" ({absent} are not measured)" if absent else ""
    label = runs.methods["ours"].label
    return (
        f"Our configuration ({label}) is better than {', '.join(counts)} of {len(cells)} "
        f"cells{rest}."
    )


def duels(runs: Runs) -> str:
    """Our configuration against VBLL and the Gaussian process."""
    rows = []
    for (metric, rival), row in _duels(runs).items():
        cells = [
            f"{'✓' if row[d] < 0 else '✗'} {signed(row[d], 2)}" if d in row else BLANK
            for d in runs.columns
        ]
        count = f"{sum(value < 0 for value in row.values())} of {len(runs.columns)}"
        rows.append([f"{METRICS[metric]}, {rival}", *cells, count])
    return (
        "One configuration for all data sets, chosen on validation data, one pass, the same "
        "network (✓: better). Differences are of printed means: equal in two decimals is not "
        "better.\n\n"
        + table(["against", *map(title, runs.columns), "better in"], rows)
        + f"\n\n{headline(runs)}"
    )


def ablation(runs: Runs) -> str:
    """Variants of training and of calibration."""
    parts = [ABLATION]
    for metric, label in METRICS.items():
        rows = [["Ours", *(show(runs.estimate("ours", d, metric)) for d in runs.columns)]]
        rows += [
            [runs.methods[name].label, *change_row(runs, name, metric, "ours", counts=False)]
            for name in runs.variants("ours")
        ]
        for name in ALTERNATIVES if metric == "nll" else ("exact",):
            cells = [
                show_change(runs.by_seed("ours", d, metric), _alternative(runs, d, metric, name))
                for d in runs.columns
            ]
            rows.append([ALTERNATIVES[name], *cells])
        parts.append(f"{label} on test data.\n\n" + table(["", *map(title, runs.columns)], rows))
    parts.append(
        "What the choices were made by: mean NLL on validation data, the calibration fitted on "
        "the same.\n\n" + _validation(runs)
    )
    return "\n\n".join(parts)


def _alternative(runs: Runs, dataset: str, metric: str, name: str) -> dict[int, float]:
    """A metric of each seed of ours, calibrated in another way."""
    return {
        run["config"]["seed"]: run["metrics"]["alternatives"][name][metric]
        for run in runs.records("ours", dataset)
        if "alternatives" in run["metrics"]
    }


def _validation(runs: Runs) -> str:
    """Mean validation NLL of ours, its variants and calibrations, on shared seeds."""
    names = ["ours", *runs.variants("ours")]
    shared = {}
    for dataset in runs.columns:
        seeds = [set(runs.by_seed(method, dataset, "nll")) for method in names]
        shared[dataset] = set.intersection(*([found for found in seeds if found] or [set()]))
    sources = [(runs.methods[method].label, method, "validation_nll") for method in names]
    sources += [(label, "ours", f"validation_nll_{kind}") for kind, label in ALTERNATIVES.items()]
    rows = []
    for label, method, value in sources:
        cells = []
        for dataset in runs.columns:
            records = runs.records(method, dataset)
            chosen = [run["metrics"] for run in records if run["config"]["seed"] in shared[dataset]]
            found = [metrics[value] for metrics in chosen if metrics.get(value) is not None]
            cells.append(f"{sum(found) / len(found):.2f}" if found else BLANK)
        rows.append([label, *cells])
    return table(["", *map(title, runs.columns)], rows)
