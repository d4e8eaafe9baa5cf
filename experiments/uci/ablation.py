"""What the parts of our configuration are worth."""

from __future__ import annotations

from ..baselines.ours import ALTERNATIVES
from ..published import DATASETS
from .comparison import METRICS
from .markdown import BLANK, name, show, table
from .sections import show_change
from .statistics import ABLATION, Runs

CALIBRATIONS = {
    "gaussian": "calibrated variance, Gaussian tails",
    "uncalibrated": "no calibration",
    "exact": "last layer and noise solved exactly, calibrated tails",
}

INTRODUCTION = """\
Change from our configuration on the same seeds ± its standard error; above zero, the variant is
worse; bold is beyond two standard errors."""


def ablation(runs: Runs) -> str:
    """Variants of training and of calibration."""
    variants = [method for method in runs.methods if method.startswith(ABLATION)]
    parts = [INTRODUCTION]
    for metric, label in METRICS.items():
        rows = [["Ours", *(show(runs.estimate("ours", d, metric)) for d in DATASETS)]]
        for variant in variants:
            cells = [_change(runs, d, metric, variant=variant) for d in DATASETS]
            rows.append([runs.methods[variant].label, *cells])
        for kind in ALTERNATIVES if metric == "nll" else ("exact",):
            cells = [_change(runs, d, metric, alternative=kind) for d in DATASETS]
            rows.append([CALIBRATIONS[kind], *cells])
        parts.append(f"{label} on test data.\n\n" + table(["", *map(name, DATASETS)], rows))
    parts.append(
        "What the choices were made by: mean NLL on validation data, the calibration fitted on "
        "the same.\n\n" + _validation(runs)
    )
    return "\n\n".join(parts)


def _change(
    runs: Runs, dataset: str, metric: str, variant: str = "ours", alternative: str | None = None
) -> str:
    """Mean difference from ours over seeds that both have, whose splits are the same."""
    mine = runs.by_seed("ours", dataset, metric)
    if alternative is None:
        other = runs.by_seed(variant, dataset, metric)
    else:
        other = {
            run["config"]["seed"]: run["metrics"]["alternatives"][alternative][metric]
            for run in runs.by_cell.get(("ours", dataset), [])
            if "alternatives" in run["metrics"]
        }
    return show_change(mine, other)


def _validation(runs: Runs) -> str:
    """Mean validation NLL of ours, its variants and calibrations, on shared seeds."""
    names = ["ours", *(method for method in runs.methods if method.startswith(ABLATION))]
    shared = {}
    for dataset in DATASETS:
        seeds = [set(runs.by_seed(method, dataset, "nll")) for method in names]
        shared[dataset] = set.intersection(*([found for found in seeds if found] or [set()]))
    sources = [(runs.methods[method].label, method, "validation_nll") for method in names]
    sources += [(CALIBRATIONS[kind], "ours", f"validation_nll_{kind}") for kind in ALTERNATIVES]
    rows = []
    for label, method, value in sources:
        cells = []
        for dataset in DATASETS:
            cell = runs.by_cell.get((method, dataset), [])
            chosen = [run["metrics"] for run in cell if run["config"]["seed"] in shared[dataset]]
            found = [metrics[value] for metrics in chosen if metrics.get(value) is not None]
            cells.append(f"{sum(found) / len(found):.2f}" if found else BLANK)
        rows.append([label, *cells])
    return table(["", *map(name, DATASETS)], rows)
