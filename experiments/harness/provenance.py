"""Where the numbers of a page come from: times, settings, versions, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from .jobs import Experiment
from .sections import grouped
from .statistics import Runs
from .tables import BLANK, bullets, ranges, table, title


def times(runs: Runs, groups: Mapping[str, Sequence[str]]) -> str:
    """Processor time per seed, what each method took in all, and what groups of them did."""

    def seconds(method: str, columns: Iterable[str]) -> list[float]:
        return [run["processor_seconds"] for c in columns for run in runs.records(method, c)]

    def rows(method: str) -> list[list[str]]:
        found = [seconds(method, [column]) for column in runs.columns]
        means = [f"{np.mean(values):.1f}" if values else BLANK for values in found]
        return [[runs.methods[method].label, *means, f"{sum(map(sum, found)) / 60:.1f}"]]

    minutes = {method: sum(seconds(method, runs.columns)) / 60 for method in runs.methods}
    total = sum(minutes.values())
    shares = [(who, sum(minutes[method] for method in group)) for who, group in groups.items()]
    lines = grouped(runs, runs.methods, rows)
    lines.append(["**all**", *[""] * len(runs.columns), f"**{total:.1f}**"])
    return (
        "Seconds of processor time per seed, mean over seeds; seeds that trained as one batched "
        "model share its time equally. Records hold wall time too, which depends on what else the "
        "machine did. On two cores "
        + ", ".join(f"{who} took {spent / 120:.2f} hours" for who, spent in shares)
        + f"; {total / 60:.2f} core-hours together.\n\n"
        + table(["", *map(title, runs.columns), "core-minutes"], lines)
    )


def settings(runs: Runs, experiment: Experiment) -> str:
    """Settings of each method, seeds, versions and dates."""
    lines = []
    known = {"method", "seed", *(name for about in experiment.columns.values() for name in about)}
    for method, description in runs.methods.items():
        found = {c: runs.records(method, c) for c in runs.columns if runs.records(method, c)}
        if not found:
            continue
        configs = {c: [run["config"] for run in records] for c, records in found.items()}
        names = dict.fromkeys(n for c in configs.values() for config in c for n in config)
        values = [
            f"{name} {_where({c: _either(each, name) for c, each in configs.items()})}"
            for name in names
            if name not in known
        ]
        seeds = _where({c: str(len(records)) for c, records in found.items()})
        links = dict.fromkeys(
            f"[{title(c)}]({experiment.path(Path(), c, method).name})" for c in found
        )
        lines.append(
            f"**{description.label}**, {seeds} seeds: {', '.join(values)}. Records: "
            f"{', '.join(links)}."
        )
    everything = [run for records in runs.by_cell.values() for run in records]
    versions = sorted({f"{k} {v}" for run in everything for k, v in run["versions"].items()})
    dates = sorted(run["time"][:10] for run in everything)
    if not dates:
        return bullets([])
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return bullets(lines) + f"\n\nVersions: {', '.join(versions)}. Runs of {span}."


def _either(configs: Sequence[Mapping[str, object]], name: str) -> str:
    """The value of a setting; several, if runs of one cell do not agree."""
    return " or ".join(sorted({str(config.get(name)) for config in configs}))


def _where(values: Mapping[str, str]) -> str:
    """One value if it is the same in all columns, else the most frequent and the exceptions."""
    common = max(values.values(), key=list(values.values()).count)
    others = [f"{value} on {title(column)}" for column, value in values.items() if value != common]
    return f"{common} ({', '.join(others)})" if others else common


def missing(runs: Runs, experiment: Experiment) -> str:
    """What has no record, and the commands that run it."""
    absent = runs.missing()
    if not absent:
        return "Nothing: every method has all its seeds in every column."
    lines = []
    groups: dict[tuple[str, ...], list[str]] = {}
    for method, columns in absent.items():
        groups.setdefault(tuple(columns), []).append(method)
        total = runs.methods[method].num_seeds
        parts = [
            title(c) if len(seeds) == total[c] else f"{title(c)} (seeds {ranges(seeds)})"
            for c, seeds in columns.items()
        ]
        lines.append(f"{runs.methods[method].label}: {', '.join(parts)}")
    start = f"python -m experiments {experiment.name}"
    commands = [
        f"{start} --{experiment.option} {','.join(columns)} --methods {','.join(methods)}"
        for columns, methods in groups.items()
    ]
    return bullets(lines) + "\n\n```\n" + "\n".join(commands) + "\n```"
