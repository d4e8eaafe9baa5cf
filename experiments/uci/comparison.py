"""How far measured results are from the paper's, and how far our configuration gets beyond."""

from __future__ import annotations

from ..published import DATASETS, EXPLANATIONS, SUSPECT, UCI, Estimate
from .markdown import BLANK, bullets, name, show, signed, table
from .sections import chosen_epochs, show_change
from .statistics import Difference, Runs, comparable

METRICS = {"nll": "NLL", "rmse": "RMSE"}
VBLL_LIMIT, BASELINE_LIMIT = 1.0, 2.0  # standard errors: the targets of this reproduction
RIVALS = {"vbll": "VBLL", "gp": "RBF GP"}

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
    return (found.in_combined if combined else found.in_paper) <= VBLL_LIMIT


def _close(found: Difference) -> bool:
    """Whether a baseline is within two combined standard errors of the paper's, on either side."""
    return abs(found.in_combined) <= BASELINE_LIMIT


def summary(runs: Runs) -> str:
    """What was aimed at, and what was reached."""
    cells = comparable(runs, runs.methods)
    vbll = [found for (method, *_), found in cells.items() if method == "vbll"]
    own, both = (sum(_reached(found, combined) for found in vbll) for combined in (False, True))
    others = {key: found for key, found in cells.items() if key[0] != "vbll"}
    far = [key for key, found in others.items() if not _close(found)]
    unexplained = sum(not _explained(method, dataset) for method, dataset, _ in far)
    lines = [
        f"VBLL is within one standard error of the paper's or better in {own} of 12 cells by the "
        f"paper's own standard error, and in {both} of 12 by the combined one"
        + (f" ({12 - len(vbll)} are not measured)." if len(vbll) < 12 else "."),
        f"Baselines: {len(others) - len(far)} of {len(others)} cells measured are within two "
        f"combined standard errors of the paper's; of the other {len(far)}, "
        f"{len(far) - unexplained} are explained below and {unexplained} are not.",
    ]
    if runs.has("ours"):
        lines.append(_beyond(runs))
    absent = sum(len(seeds) for row in runs.missing().values() for seeds in row.values())
    if absent:
        lines.append(f"{absent} runs are missing: see the end of this page.")
    return bullets(lines)


def misprints(runs: Runs) -> str:
    """Notes on the cells marked †."""
    notes = [
        f"{runs.methods[method].label} on {name(dataset)}, {METRICS[metric]}: {why}"
        for (method, dataset, metric), why in SUSPECT.items()
        if method in runs.methods
    ]
    return f"† Looks like a misprint in the paper. {'; '.join(notes)}." if notes else ""


def against_paper(runs: Runs) -> str:
    """VBLL in both units, all methods in combined standard errors, and what is too far away."""
    cells = comparable(runs, runs.methods)
    parts = [AGAINST, f"#### VBLL\n\n{_vbll(runs, cells)}", "#### All methods"]
    for metric, label in METRICS.items():
        rows = []
        for method in dict.fromkeys(key[0] for key in UCI):
            if method in runs.methods:
                row = [_difference(cells, (method, dataset, metric)) for dataset in DATASETS]
                rows.append([runs.methods[method].label, *row])
        parts.append(
            f"{label}, differences in combined standard errors; bold is beyond the target.\n\n"
            + table(["", *map(name, DATASETS)], rows)
        )
    parts.append(f"#### Baselines further away than two standard errors\n\n{_far(runs, cells)}")
    return "\n\n".join(parts)


def _difference(
    cells: dict[tuple[str, str, str], Difference], key: tuple[str, str, str], in_paper: bool = False
) -> str:
    if key in SUSPECT:
        return "†"
    if key not in cells:
        return BLANK
    found = cells[key]
    text = signed(found.in_paper if in_paper else found.in_combined)
    reached = _reached(found, not in_paper) if key[0] == "vbll" else _close(found)
    return text if reached else f"**{text}**"


def _vbll(runs: Runs, cells: dict[tuple[str, str, str], Difference]) -> str:
    rows = []
    for metric, label in METRICS.items():
        keys = [("vbll", dataset, metric) for dataset in DATASETS]
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
            paper = show(UCI[method, dataset, metric])
            by = "only by the paper's own" if _reached(found, True) else "by either"
            outside.append(f"{name(dataset)}, {METRICS[metric]}: {ours}, paper {paper}; {by}")
            if (method, dataset) in EXPLANATIONS:
                reasons[name(dataset)] = EXPLANATIONS[method, dataset]
    return (
        "Target: within one standard error or better, in 12 cells. Bold is neither.\n\n"
        + table(["", *map(name, DATASETS)], rows)
        + "\n\nOutside the target:\n\n"
        + bullets(outside)
        + "".join(f"\n\n{where}: {why}" for where, why in reasons.items())
        + _variants(runs, "vbll")
    )


def _variants(runs: Runs, method: str) -> str:
    """Variants of a method, where the paper is silent or may have meant another."""
    keys = [key for key in runs.methods if key.startswith(f"{method}-") and runs.has(key)]
    if not keys:
        return ""
    whole, variants = runs.methods[method].label, {key: runs.methods[key].label for key in keys}
    rows = []
    for metric, title in (METRICS | {"validation_nll": "validation NLL"}).items():
        before = {dataset: runs.by_seed(method, dataset, metric) for dataset in DATASETS}
        rows.append([f"*{title}*"])
        if metric in METRICS:
            rows.append(["paper", *(show(UCI[method, d, metric]) for d in DATASETS)])
        rows.append([whole, *(show(runs.estimate(method, d, metric)) for d in DATASETS)])
        for key, label in variants.items():
            cells = []
            for dataset in DATASETS:
                after = runs.by_seed(key, dataset, metric)
                few = f" ({len(after)} seeds)" if 0 < len(after) < len(before[dataset]) else ""
                cells.append(show_change(before[dataset], after) + few)
            rows.append([label, *cells])
    rows.append(["*epochs chosen*"])
    for key, label in {method: whole, **variants}.items():
        rows.append([label, *(chosen_epochs(runs, key, dataset) for dataset in DATASETS)])
    return f"\n\nVariants of {whole}: {VARIANTS}\n\n" + table(["", *map(name, DATASETS)], rows)


def _far(runs: Runs, cells: dict[tuple[str, str, str], Difference]) -> str:
    rows, reasons = [], {}
    for (method, dataset, metric), found in cells.items():
        if method == "vbll" or _close(found):
            continue
        label = runs.methods[method].label
        where = next((d for d in (dataset, "*") if (method, d) in EXPLANATIONS), None)
        if where:
            title = label if where == "*" else f"{label}, {name(where)}"
            reasons[title] = EXPLANATIONS[method, where]
        rows.append(
            [
                f"{label}, {name(dataset)}, {METRICS[metric]}",
                show(runs.estimate(method, dataset, metric)),
                show(UCI[method, dataset, metric]),
                signed(found.in_combined),
                signed(found.in_paper),
                "yes" if where else "**no**",
            ]
        )
    if not rows:
        return "None."
    header = ["", "measured", "paper", "in combined", "in the paper's", "explained"]
    why = [f"**{title}**: {text}" for title, text in reasons.items()]
    text = "\n\n".join([table(header, rows), *([bullets(why)] if why else [])])
    return text + _variants(runs, "vbll_bbb")


def _explained(method: str, dataset: str) -> bool:
    return (method, dataset) in EXPLANATIONS or (method, "*") in EXPLANATIONS


def _duels(runs: Runs) -> dict[tuple[str, str], dict[str, float]]:
    """Printed difference of our configuration from each rival's, by (metric, rival), data set."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for metric in METRICS:
        for rival, label in RIVALS.items():
            for source in ("the paper's", "measured"):
                row = found.setdefault((metric, f"{source} {label}"), {})
                for dataset in DATASETS:
                    mine = runs.estimate("ours", dataset, metric)
                    other: Estimate | None = UCI[rival, dataset, metric]
                    if source == "measured":
                        other = runs.estimate(rival, dataset, metric)
                    if mine and other:
                        row[dataset] = round(round(mine.mean, 2) - round(other.mean, 2), 2)
    return found


def _beyond(runs: Runs) -> str:
    wins: dict[str, int] = {}
    for (_, rival), row in _duels(runs).items():
        wins[rival] = wins.get(rival, 0) + sum(value < 0 for value in row.values())
    counts = [f"{rival} in {count}" for rival, count in wins.items()]
    label = runs.methods["ours"].label
    absent = sum(runs.estimate("ours", d, metric) is None for d in DATASETS for metric in METRICS)
    rest = f" ({absent} are not measured)" if absent else ""
    return f"Our configuration ({label}) is better than {', '.join(counts)} of 12 cells{rest}."


def ours(runs: Runs) -> str:
    """Our configuration against VBLL and the Gaussian process."""
    rows = []
    for (metric, rival), row in _duels(runs).items():
        cells = [
            f"{'✓' if row[d] < 0 else '✗'} {signed(row[d], 2)}" if d in row else BLANK
            for d in DATASETS
        ]
        count = f"{sum(value < 0 for value in row.values())} of {len(DATASETS)}"
        rows.append([f"{METRICS[metric]}, {rival}", *cells, count])
    return (
        "One configuration for all data sets, chosen on validation data, one pass, the same "
        "network (✓: better). Differences are of printed means: equal in two decimals is not "
        "better.\n\n"
        + table(["against", *map(name, DATASETS), "better in"], rows)
        + f"\n\n{_beyond(runs)}"
    )
