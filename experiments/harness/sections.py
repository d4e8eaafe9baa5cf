"""Parts of the page of results, each from the records of runs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ..published import DATASETS, SUSPECT, UCI, Estimate
from .markdown import BLANK, bullets, digits_of, name, ranges, show, signed, table
from .statistics import ABLATION, PAPER_VARIANTS, Runs, estimate, marked

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
    """A row for each method, a column for each data set."""

    def rows(method: str) -> list[list[str]]:
        return [[runs.methods[method].label, *(cell(method, dataset) for dataset in DATASETS)]]

    return table(["", *map(name, DATASETS)], grouped(runs, methods, rows))


def compared_table(runs: Runs, methods: Sequence[str], metric: str) -> str:
    """Two rows for each method: measured here, and the paper's."""
    ours = {(m, d): runs.estimate(m, d, metric) for m in methods for d in DATASETS}
    paper = {(m, d): UCI[m, d, metric] for m, d in ours if (m, d, metric) in UCI}
    certain = {key: cell for key, cell in paper.items() if (*key, metric) not in SUSPECT}
    best_ours, best_paper = best(runs, ours), best(runs, certain)

    def rows(method: str) -> list[list[str]]:
        cells = [show(ours[method, d], bold=(method, d) in best_ours) for d in DATASETS]
        found = [[runs.methods[method].label, "measured", *cells]]
        if (method, DATASETS[0]) in paper:
            cells = [
                show(paper[method, d], digits_of(paper[method, d]), (method, d) in best_paper)
                + ("†" if (method, d, metric) in SUSPECT else "")
                for d in DATASETS
            ]
            found.append(["", "paper", *cells])
        return found

    return table(["", "", *map(name, DATASETS)], grouped(runs, methods, rows), num_names=2)


def best(
    runs: Runs, cells: Mapping[tuple[str, str], Estimate | None], digits: int = 2
) -> set[tuple[str, str]]:
    """Method and data set of the cells to mark, among methods of the registry."""
    single = [method for method, about in runs.methods.items() if about.single_pass]
    found = set()
    for dataset in DATASETS:
        column = {
            method: cell
            for (method, where), cell in cells.items()
            if where == dataset and cell and runs.methods[method].single_pass is not None
        }
        found |= {(method, dataset) for method in marked(column, single, digits)}
    return found


def metric_table(
    runs: Runs, methods: Sequence[str], metric: str, digits: int, mark: bool, percent: bool = False
) -> str:
    """A row for each method."""
    scale = 100 if percent else 1
    cells: dict[tuple[str, str], Estimate | None] = {}
    for method in methods:
        for dataset in DATASETS:
            cell = runs.estimate(method, dataset, metric)
            cells[method, dataset] = cell and Estimate(scale * cell.mean, scale * cell.stderr)
    bold = best(runs, cells, digits) if mark else set()
    return method_table(runs, methods, lambda m, d: show(cells[m, d], digits, (m, d) in bold))


def stability(runs: Runs, methods: Sequence[str]) -> str:
    """Median and worst NLL, and the seeds that stand out."""

    def cell(method: str, dataset: str) -> str:
        values = runs.values(method, dataset, "nll")
        if not len(values):
            return BLANK
        return f"{np.median(values):.2f} / {np.max(values):.2f}"

    lines = [
        f"{runs.methods[m].label}, {name(d)}: "
        + ", ".join(f"seed {seed} ({value:.2f})" for seed, value in runs.outliers(m, d).items())
        for m in methods
        for d in DATASETS
        if runs.outliers(m, d)
    ]
    return (
        "Median / worst seed.\n\n"
        + method_table(runs, methods, cell)
        + "\n\nSeeds whose NLL is no number or lies more than three robust standard deviations "
        "(1.48 median absolute deviations each) above the median:\n\n" + bullets(lines)
    )


def times(runs: Runs) -> str:
    """Processor time per seed, and what each method took in all."""

    def seconds(method: str, datasets: Iterable[str]) -> list[float]:
        found = [run for d in datasets for run in runs.by_cell.get((method, d), [])]
        return [run["processor_seconds"] for run in found]

    def rows(method: str) -> list[list[str]]:
        found = [seconds(method, [dataset]) for dataset in DATASETS]
        means = [f"{np.mean(values):.1f}" if values else BLANK for values in found]
        return [[runs.methods[method].label, *means, f"{sum(map(sum, found)) / 60:.1f}"]]

    minutes = {method: sum(seconds(method, DATASETS)) / 60 for method in runs.methods}
    total = sum(minutes.values())
    groups = {
        "the paper's methods": [method for method in runs.main if method != "ours"],
        "ours": [method for method in runs.main if method == "ours"],
        "its ablation": [method for method in minutes if method.startswith(ABLATION)],
        "variants of the paper's": [
            method for method in minutes if method.startswith(PAPER_VARIANTS)
        ],
    }
    shares = [(who, sum(minutes[method] for method in group)) for who, group in groups.items()]
    lines = grouped(runs, runs.methods, rows)
    lines.append(["**all**", *[""] * len(DATASETS), f"**{total:.1f}**"])
    return (
        "Seconds of processor time per seed, mean over seeds; a process has one thread, and seeds "
        "that trained as one batched model share its time equally. Records hold wall time too, "
        "which depends on what else the machine did. On two cores "
        + ", ".join(f"{who} took {spent / 120:.2f} hours" for who, spent in shares)
        + f"; {total / 60:.2f} core-hours together.\n\n"
        + table(["", *map(name, DATASETS), "core-minutes"], lines)
    )


def settings(runs: Runs) -> str:
    """Knobs of each method, chosen epochs, seeds, versions and dates."""
    lines = []
    for method, description in runs.methods.items():
        found = {d: runs.by_cell[method, d] for d in DATASETS if (method, d) in runs.by_cell}
        if not found:
            continue
        configs = {d: [run["config"] for run in records] for d, records in found.items()}
        knobs = dict.fromkeys(knob for cell in configs.values() for knob in cell[0])
        text = ", ".join(
            f"{knob} {_where({d: _either(cell, knob) for d, cell in configs.items()})}"
            for knob in knobs
            if knob not in ("method", "dataset", "seed")
        )
        counts = _where({dataset: str(len(records)) for dataset, records in found.items()})
        links = ", ".join(f"[{name(d)}](uci/{d}-{method}.jsonl)" for d in found)
        lines.append(f"**{description.label}**, {counts} seeds: {text}. Records: {links}.")
    everything = [run for records in runs.by_cell.values() for run in records]
    versions = sorted({f"{k} {v}" for run in everything for k, v in run["versions"].items()})
    dates = sorted(run["time"][:10] for run in everything)
    if not dates:
        return bullets([])
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return bullets(lines) + f"\n\nVersions: {', '.join(versions)}. Runs of {span}."


def _either(configs: Sequence[Mapping[str, object]], knob: str) -> str:
    """The value of a knob; several, if runs of one cell do not agree."""
    return " or ".join(sorted({str(config.get(knob)) for config in configs}))


def _where(values: Mapping[str, str]) -> str:
    """One value if it is the same on all data sets, else the most frequent and the exceptions."""
    common = max(values.values(), key=list(values.values()).count)
    others = [f"{value} on {name(dataset)}" for dataset, value in values.items() if value != common]
    return f"{common} ({', '.join(others)})" if others else common


def epochs(runs: Runs, methods: Sequence[str]) -> str:
    """Chosen numbers of epochs."""
    return (
        "Epochs chosen on validation data: median over seeds, and in brackets how many seeds chose "
        "the largest number allowed. Where nothing is chosen so, as by the Gaussian process, "
        "evaluations of the objective.\n\n"
        + method_table(runs, methods, functools.partial(chosen_epochs, runs))
    )


def chosen_epochs(runs: Runs, method: str, dataset: str) -> str:
    """Median over seeds, and how many chose the largest number allowed, if any."""
    values = runs.values(method, dataset, "epochs")
    values = values[np.isfinite(values)]
    if not len(values):
        return BLANK
    first = runs.by_cell[method, dataset][0]
    chosen = first["metrics"].get("validation_nll") is not None
    most = first["config"].get("epochs") if chosen else None
    reached = int(np.sum(values >= (most or math.inf)))
    return f"{np.median(values):.0f}" + (f" ({reached})" if reached else "")


def show_change(before: Mapping[int, float], after: Mapping[int, float]) -> str:
    """Mean difference over the seeds that both have, whose splits are the same.

    With its standard error, and bold beyond two of them.
    """
    shared = sorted(set(before) & set(after))
    if not shared:
        return BLANK
    change = estimate([after[seed] - before[seed] for seed in shared])
    text = signed(change.mean, 2)
    if math.isfinite(change.stderr):
        text += show(Estimate(0.0, change.stderr))[len("0.00") :]
    return f"**{text}**" if abs(change.mean) > 2 * change.stderr else text


def missing(runs: Runs) -> str:
    """What has no record, and the commands that run it."""
    absent = runs.missing()
    if not absent:
        return "Nothing: every method of the registry has all its seeds on every data set."
    lines = []
    groups: dict[tuple[str, ...], list[str]] = {}
    for method, datasets in absent.items():
        groups.setdefault(tuple(datasets), []).append(method)
        total = runs.methods[method].num_seeds
        parts = [
            name(d) if len(seeds) == total[d] else f"{name(d)} (seeds {ranges(seeds)})"
            for d, seeds in datasets.items()
        ]
        lines.append(f"{runs.methods[method].label}: {', '.join(parts)}")
    commands = [
        f"python -m experiments uci --datasets {','.join(datasets)} --methods {','.join(methods)}"
        for datasets, methods in groups.items()
    ]
    return bullets(lines) + "\n\n```\n" + "\n".join(commands) + "\n```"
