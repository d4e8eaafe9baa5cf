"""How far measured results are from the paper's."""

from __future__ import annotations

import math

import numpy as np

from ..harness.sections import change_row
from ..harness.statistics import Cell, Difference, Runs, differences
from ..harness.tables import BLANK, bullets, show, signed, table, title
from .explanations import explanation
from .published import PUBLISHED
from .task import NLL, RMSE

METRICS = {metric.name: metric.label for metric in (NLL, RMSE)}
VBLL_LIMIT, BASELINE_LIMIT = 1.0, 2.0  # standard errors: the targets of this reproduction

AGAINST = """\
Differences are measured minus paper, so above zero is worse. They are given in standard errors in
two ways: the paper's own alone, and the combined one, √(a² + b²) of both. Means are not rounded
before they are compared, and suspected misprints (†) are not compared."""

VARIANTS = """\
the change on the same seeds ± its standard error; above zero, the variant is worse; bold is beyond
two standard errors. Validation NLL is that of the best epoch. Epochs are medians over seeds, in
brackets how many seeds chose the largest number allowed; the paper says that its runs never did."""


def _reached(found: Difference, combined: bool) -> bool:
    """Whether VBLL is within one standard error of the paper's, or better; NaN is not."""
    return (found.in_combined if combined else found.in_published) <= VBLL_LIMIT


def _close(found: Difference) -> bool:
    """Whether a baseline is within two combined standard errors of the paper's, on either side."""
    return abs(found.in_combined) <= BASELINE_LIMIT


def reproduced(runs: Runs) -> str:
    """In how many cells VBLL is as good as the paper's."""
    cells = differences(runs, PUBLISHED)
    vbll = [found for (method, *_), found in cells.items() if method == "vbll"]
    total = sum(method == "vbll" for method, *_ in PUBLISHED.certain)
    own, both = (sum(_reached(found, combined) for found in vbll) for combined in (False, True))
    return (
        f"VBLL is within one standard error of the paper's or better in {own} of {total} cells by "
        f"the paper's own standard error, and in {both} of {total} by the combined one"
        + (f" ({total - len(vbll)} are not measured)." if len(vbll) < total else ".")
    )


def baselines(runs: Runs) -> str:
    """In how many cells baselines agree with the paper's."""
    cells = differences(runs, PUBLISHED)
    others = {key: found for key, found in cells.items() if key[0] != "vbll"}
    far = [key for key, found in others.items() if not _close(found)]
    unexplained = sum(explanation(method, dataset) is None for method, dataset, _ in far)
    return (
        f"Baselines: {len(others) - len(far)} of {len(others)} cells measured are within two "
        f"combined standard errors of the paper's; of the other {len(far)}, "
        f"{len(far) - unexplained} are explained below and {unexplained} are not."
    )


def misprints(runs: Runs) -> str:
    """Notes on the cells marked †."""
    notes = [
        f"{runs.methods[method].label} on {title(dataset)}, {METRICS[metric]}: {why}"
        for (method, dataset, metric), why in PUBLISHED.suspect.items()
        if method in runs.methods
    ]
    return f"† Looks like a misprint in the paper. {'; '.join(notes)}." if notes else ""


def against_paper(runs: Runs) -> str:
    """VBLL in both units, all methods in combined standard errors, and what is too far away."""
    cells = differences(runs, PUBLISHED)
    parts = [AGAINST, f"### VBLL\n\n{_vbll(runs, cells)}", "### All methods"]
    for metric, label in METRICS.items():
        rows = []
        for method in dict.fromkeys(key[0] for key in PUBLISHED.cells):
            if method in runs.methods:
                row = [_difference(cells, (method, dataset, metric)) for dataset in runs.columns]
                rows.append([runs.methods[method].label, *row])
        parts.append(
            f"{label}, differences in combined standard errors; bold is beyond the target.\n\n"
            + table(["", *map(title, runs.columns)], rows)
        )
    parts.append(f"### Baselines further away than two standard errors\n\n{_far(runs, cells)}")
    return "\n\n".join(parts)


def _difference(cells: dict[Cell, Difference], key: Cell, in_published: bool = False) -> str:
    if key in PUBLISHED.suspect:
        return "†"
    if key not in cells:
        return BLANK
    found = cells[key]
    text = signed(found.in_published if in_published else found.in_combined)
    reached = _reached(found, not in_published) if key[0] == "vbll" else _close(found)
    return text if reached else f"**{text}**"


def _vbll(runs: Runs, cells: dict[Cell, Difference]) -> str:
    rows = []
    for metric, label in METRICS.items():
        keys = [("vbll", dataset, metric) for dataset in runs.columns]
        values = [signed(cells[key].value, 2) if key in cells else BLANK for key in keys]
        rows += [
            [f"{label}: difference", *values],
            ["in the paper's standard errors", *[_difference(cells, key, True) for key in keys]],
            ["in combined standard errors", *[_difference(cells, key) for key in keys]],
        ]
    outside, reasons = [], {}
    for (method, dataset, metric), found in cells.items():
        if method == "vbll" and not (_reached(found, False) and _reached(found, True)):
            ours = show(runs.estimate(method, dataset, metric))
            paper = show(PUBLISHED.cells[method, dataset, metric])
            by = "only by the paper's own" if _reached(found, True) else "by either"
            outside.append(f"{title(dataset)}, {METRICS[metric]}: {ours}, paper {paper}; {by}")
            if reason := explanation(method, dataset):
                reasons[title(dataset)] = reason[1]
    return (
        "Target: within one standard error or better, in all cells. Bold is neither.\n\n"
        + table(["", *map(title, runs.columns)], rows)
        + "\n\nOutside the target:\n\n"
        + bullets(outside)
        + "".join(f"\n\n{where}: {why}" for where, why in reasons.items())
        + _variants(runs, "vbll")
    )


def _variants(runs: Runs, method: str) -> str:
    """Variants of a method, where the paper is silent or may have meant another."""
    variants = [name for name in runs.variants(method) if runs.has(name)]
    if not variants:
        return ""
    label, rows = runs.methods[method].label, []
    for metric, heading in (METRICS | {"validation_nll": "validation NLL"}).items():
        rows.append([f"*{heading}*"])
        if metric in METRICS:
            paper = (PUBLISHED.cells[method, d, metric] for d in runs.columns)
            rows.append(["paper", *map(show, paper)])
        rows.append([label, *(show(runs.estimate(method, d, metric)) for d in runs.columns)])
        rows += [
            [runs.methods[name].label, *change_row(runs, name, metric, method)] for name in variants
        ]
    rows.append(["*epochs chosen*"])
    for name in (method, *variants):
        row = [chosen_epochs(runs, name, dataset) for dataset in runs.columns]
        rows.append([runs.methods[name].label, *row])
    return f"\n\nVariants of {label}: {VARIANTS}\n\n" + table(["", *map(title, runs.columns)], rows)


def chosen_epochs(runs: Runs, method: str, dataset: str) -> str:
    """Median over seeds, and how many chose the largest number allowed, if any."""
    values = runs.values(method, dataset, "epochs")
    values = values[np.isfinite(values)]
    if not len(values):
        return BLANK
    first = runs.records(method, dataset)[0]
    chosen = first["metrics"].get("validation_nll") is not None
    most = first["config"].get("epochs") if chosen else None
    reached = int(np.sum(values >= (most or math.inf)))
    return f"{np.median(values):.0f}" + (f" ({reached})" if reached else "")


def _far(runs: Runs, cells: dict[Cell, Difference]) -> str:
    rows, reasons = [], {}
    for (method, dataset, metric), found in cells.items():
        if method == "vbll" or _close(found):
            continue
        label = runs.methods[method].label
        reason = explanation(method, dataset)
        if reason:
            where, why = reason
            reasons[label if where == "*" else f"{label}, {title(where)}"] = why
        rows.append(
            [
                f"{label}, {title(dataset)}, {METRICS[metric]}",
                show(runs.estimate(method, dataset, metric)),
                show(PUBLISHED.cells[method, dataset, metric]),
                signed(found.in_combined),
                signed(found.in_published),
                "yes" if reason else "**no**",
            ]
        )
    if not rows:
        return "None."
    header = ["", "measured", "paper", "in combined", "in the paper's", "explained"]
    lines = [f"**{heading}**: {text}" for heading, text in reasons.items()]
    parts = [table(header, rows), *([bullets(lines)] if lines else [])]
    return "\n\n".join(parts) + _variants(runs, "vbll_bbb")
