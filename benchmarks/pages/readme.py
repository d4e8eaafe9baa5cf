"""The table of README.md."""

from __future__ import annotations

from benchmarks.markdown import RESULTS, table
from experiments.harness.statistics import Estimate, Runs
from experiments.harness.tables import show, title
from experiments.uci.published import PUBLISHED
from experiments.uci.run import EXPERIMENT

NUM_SPLITS = 20  # unless a cell says otherwise
MEASURED = {  # methods by their names in the records
    "VBLL, `vbll` package": "vbll-package",
    "VBLL, `lastlayer`": "vbll",
    "RBF Gaussian process": "gp",
    "`lastlayer.crossfit`": "ours",
}


def _cell(estimate: Estimate, num_splits: int, bold: bool) -> str:
    text = f"**{show(estimate)}**" if bold else show(estimate)
    return text if num_splits == NUM_SPLITS else f"{text} ({num_splits} splits)"


def uci() -> str:
    """Test NLL of last layers and Gaussian processes; the lowest of each data set in bold."""
    runs = Runs.load(EXPERIMENT, RESULTS)
    columns = []
    for dataset in runs.columns:
        cells = [(PUBLISHED.cells["vbll", dataset, "nll"], NUM_SPLITS)]
        for method in MEASURED.values():
            estimate = runs.estimate(method, dataset, "nll")
            if estimate is None:
                raise SystemExit(f"no records of {method} on {dataset}")
            cells.append((estimate, len(runs.values(method, dataset, "nll"))))
        lowest = min(estimate.mean for estimate, _ in cells)
        columns.append([_cell(*cell, bold=cell[0].mean == lowest) for cell in cells])
    lines = [
        [name, *cells] for name, *cells in zip(["VBLL, paper", *MEASURED], *columns, strict=True)
    ]
    return table(["", *map(title, runs.columns)], lines)
