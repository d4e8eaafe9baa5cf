"""Tables of an experiment's page: metrics by method and column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from .jobs import Experiment
from .statistics import Estimate, Metric, Published, Runs, marked
from .tables import BLANK, bullets, printed_digits, show, show_change, signed, table, title

GROUPS = {True: "*single pass*", False: "*several passes*", None: "*not in the registry*"}


def grouped(
    runs: Runs, methods: Iterable[str], rows: Callable[[str], list[list[str]]]
) -> list[list[str]]:
    """The rows of all methods, with a line above single-pass methods and above the others."""
    found: list[list[str]] = []
    seen: list[bool | None] = []
    for method in methods:
        group = runs.methods[method].single_pass
        if group not in seen:
            seen.append(group)
            found.append([GROUPS[group]])
        found += rows(method)
    return found


def method_table(runs: Runs, methods: Iterable[str], cell: Callable[[str, str], str]) -> str:
    """A row for each method."""

    def rows(method: str) -> list[list[str]]:
        return [[runs.methods[method].label, *(cell(method, column) for column in runs.columns)]]

    return table(["", *map(title, runs.columns)], grouped(runs, methods, rows))


def best(
    runs: Runs, cells: Mapping[tuple[str, str], Estimate | None], metric: Metric
) -> set[tuple[str, str]]:
    """Method and column of the cells to mark, among methods that the experiment knows."""
    single = [method for method, about in runs.methods.items() if about.single_pass]
    found = set()
    for column in runs.columns:
        known = {
            method: cell
            for (method, where), cell in cells.items()
            if where == column and cell and runs.methods[method].single_pass is not None
        }
        names = marked(known, single, metric.digits, metric.higher_is_better)
        found |= {(method, column) for method in names}
    return found


def metric_table(runs: Runs, methods: Sequence[str], metric: Metric, mark: bool = True) -> str:
    """A row for each method, mean ± standard error."""
    cells = _measured(runs, methods, metric)
    bold = best(runs, cells, metric) if mark else set()
    return method_table(
        runs, methods, lambda m, c: show(cells[m, c], metric.digits, (m, c) in bold)
    )


def metrics_table(
    runs: Runs, methods: Sequence[str], column: str, metrics: Sequence[Metric]
) -> str:
    """One column of the experiment: a row for each method, and a column for each metric."""
    shown: dict[str, list[str]] = {method: [] for method in methods}
    for metric in metrics:
        cells = _measured(runs, methods, metric)
        bold = best(runs, cells, metric)
        for method, row in shown.items():
            cell, mark = cells[method, column], (method, column) in bold
            row.append(show(cell, metric.digits, mark))
    header = [
        "",
        *(f"{metric.label} {'↑' if metric.higher_is_better else '↓'}" for metric in metrics),
    ]
    return table(header, grouped(runs, methods, lambda m: [[runs.methods[m].label, *shown[m]]]))


def ranks(cells: Mapping[str, Estimate | None], metric: Metric) -> dict[str, int]:
    """The place of each method by its mean, from one; equal means share the better place."""
    sign = -1.0 if metric.higher_is_better else 1.0
    values = {name: sign * cell.mean for name, cell in cells.items() if cell is not None}
    return {name: 1 + sum(v < value for v in values.values()) for name, value in values.items()}


def rank_table(runs: Runs, column: str, metrics: Sequence[Metric], published: Published) -> str:
    """The place of each method, measured | published, among those that both have."""
    rows: dict[str, list[str]] = {}
    correlations = []
    for metric in metrics:
        theirs = {
            method: cell
            for (method, where, name), cell in published.cells.items()
            if where == column and name == metric.name
        }
        ours = {method: runs.estimate(method, column, metric.name) for method in theirs}
        both = [method for method, cell in ours.items() if cell is not None]
        places = [ranks({m: cells[m] for m in both}, metric) for cells in (ours, theirs)]
        for method in runs.methods:
            if runs.records(method, column) and method in published_methods(published):
                found = [str(place[method]) if method in place else BLANK for place in places]
                rows.setdefault(method, []).append(" \\| ".join(found))
        correlations.append(_correlation(*places))
    lines = [[runs.methods[method].label, *row] for method, row in rows.items()]
    lines.append(["**rank correlation**", *correlations])
    return table(["measured \\| paper", *(metric.label for metric in metrics)], lines)


def published_methods(published: Published) -> set[str]:
    """The methods of which there are published figures."""
    return {method for method, _, _ in published.cells}


def _correlation(ours: Mapping[str, int], theirs: Mapping[str, int]) -> str:
    """Of the places of at least three methods."""
    if len(ours) < 3:
        return BLANK
    pairs = np.array([[ours[name], theirs[name]] for name in ours], float)
    return signed(float(np.corrcoef(pairs.T)[0, 1]), 2)


def compared_table(runs: Runs, methods: Sequence[str], metric: Metric, published: Published) -> str:
    """Two rows for each method: measured here, and published."""
    ours = _measured(runs, methods, metric)
    theirs, certain = (
        {(m, c): cells[m, c, metric.name] for m, c in ours if (m, c, metric.name) in cells}
        for cells in (published.cells, published.certain)
    )
    best_ours, best_theirs = best(runs, ours, metric), best(runs, certain, metric)

    def rows(method: str) -> list[list[str]]:
        cells = [
            show(ours[method, c], metric.digits, (method, c) in best_ours) for c in runs.columns
        ]
        found = [[runs.methods[method].label, "measured", *cells]]
        if any((method, c) in theirs for c in runs.columns):
            cells = [BLANK] * len(runs.columns)
            for at, column in enumerate(runs.columns):
                if cell := theirs.get((method, column)):
                    digits = printed_digits(cell, metric.digits)
                    note = "†" if (method, column, metric.name) in published.suspect else ""
                    cells[at] = show(cell, digits, (method, column) in best_theirs) + note
            found.append(["", "paper", *cells])
        return found

    return table(["", "", *map(title, runs.columns)], grouped(runs, methods, rows), num_names=2)


def _measured(
    runs: Runs, methods: Sequence[str], metric: Metric
) -> dict[tuple[str, str], Estimate | None]:
    cells: dict[tuple[str, str], Estimate | None] = {}
    for method in methods:
        for column in runs.columns:
            cell = runs.estimate(method, column, metric.name)
            cells[method, column] = cell and Estimate(*(metric.scale * value for value in cell))
    return cells


def stability(runs: Runs, methods: Sequence[str], metric: Metric) -> str:
    """Median and worst seed of a metric that is better when lower, and seeds that stand out."""

    def cell(method: str, column: str) -> str:
        values = runs.values(method, column, metric.name)
        if not len(values):
            return BLANK
        return f"{np.median(values):.2f} / {np.max(values):.2f}"

    lines = [
        f"{runs.methods[m].label}, {title(c)}: "
        + ", ".join(f"seed {seed} ({value:.2f})" for seed, value in found.items())
        for m in methods
        for c in runs.columns
        if (found := runs.outliers(m, c, metric.name))
    ]
    return (
        "Median / worst seed.\n\n"
        + method_table(runs, methods, cell)
        + f"\n\nSeeds whose {metric.label} is no number or lies more than three robust standard "
        "deviations (1.48 median absolute deviations each) above the median:\n\n" + bullets(lines)
    )


def change_row(runs: Runs, variant: str, metric: str, whole: str, counts: bool = True) -> list[str]:
    """Change of a variant from what it is compared with, on the seeds that both have.

    Args:
        runs: all records.
        variant: a method.
        metric: by name.
        whole: the method that it is compared with.
        counts: whether to say where the variant has fewer seeds.
    """
    cells = []
    for column in runs.columns:
        before, after = (runs.by_seed(method, column, metric) for method in (whole, variant))
        few = f" ({len(after)} seeds)" if counts and 0 < len(after) < len(before) else ""
        cells.append(show_change(before, after) + few)
    return cells


def publish(
    experiment: Experiment,
    results: Path,
    page: Callable[[Runs], str],
    headline: Callable[[Runs], str],
    draw: Callable[[Runs], Figure] | None = None,
) -> str | None:
    """Write the page of an experiment and its curves, if it has some.

    Args:
        experiment: the experiment.
        results: folder of the records.
        page: from the runs to Markdown.
        headline: from the runs to a line for the index.
        draw: from the runs to the figure `curves.png`.

    Returns:
        The headline, or None without records.
    """
    runs = Runs.load(experiment, results)
    if not runs.by_cell:
        return None
    folder = results / experiment.name
    if draw is not None:
        # Without the version of matplotlib, the same records give the same file for longer.
        draw(runs).savefig(folder / "curves.png", metadata={"Software": None})
    (folder / "README.md").write_text(page(runs), encoding="utf-8")
    return headline(runs)
