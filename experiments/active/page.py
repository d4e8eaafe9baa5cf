"""The page of active learning, from the records of runs.

Deterministic: the same records give the same page.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..harness import provenance, sections
from ..harness.statistics import Metric, Runs
from ..harness.tables import BLANK, bullets, table, title
from . import problems
from .curves import Counts, budgets, counts, initial_spread, saved
from .figure import draw
from .methods import METHODS, ONE_BY_ONE, TOGETHER
from .problems import IMAGES, METRICS, REVIEWS
from .run import EXPERIMENT

RANDOM, LCMD = "random", "lcmd"
TARGET = 0.3  # labels saved

INTRODUCTION = """\
# Active learning

Written by `python -m experiments report` from the records in this folder, one line per run; do not
edit. `python -m experiments active` makes the records, and runs only what has none.

Labels are asked for in batches, by the methods of `lastlayer.acquisition.select`, and after every
batch a model is fitted anew to all labels so far. Every method begins with the same labels at
random."""

SETTINGS = f"""\
Concrete, Energy, Power and Wine are tables: a third of the rows is for tests, the others are the
pool, by which inputs are scaled to the unit cube and the target is standardised; the error is the
RMSE in these units. After every batch `lastlayer.botorch.LastLayerModel` with {problems.NUM_WAVES}
waves is trained anew from the same initial weights: features whose lengths are learned by the
evidence, the noise, and the exact posterior of the last layer, by which `select` chooses. The
published comparison (Holzmüller et al. 2023) trains a network in every round too, and asks for
thousands of labels, for which these pools are too small.

IMDB are film reviews, {problems.NUM_POOL:,} of the training reviews as the pool and
{problems.NUM_TEST:,} test reviews, on fixed features of MiniLM. CIFAR-10 are images,
{problems.NUM_POOL_IMAGES:,} training images as the pool and {problems.NUM_TEST_IMAGES:,} test
images, on the first {problems.NUM_COMPONENTS} principal components of features of
EfficientNet-lite0. Both have a discriminative head; the error is the fraction of wrong labels.

Models were chosen by labels at random and data that were held out; nothing was chosen by test data
([decision 28](../../docs/decisions/0028-active-learning-protocol.md),
[decision 42](../../docs/decisions/0042-tables-train-features.md)). With one output and the same
noise everywhere, BALD and entropy rank the points of a table as their variances do, so they are run
on classes alone; with two classes the margin ranks them as the entropy does."""

REASONS = """\
The defaults are LCMD for numbers and the margin for classes, which for two classes chooses as the
entropy does ([decision 32](../../docs/decisions/0032-labels-of-classes.md)).

Likely reasons of what was missed. On Wine labels are noise for the most part, so that random is
as good as any. On Energy LCMD is behind at first and ahead later: its points lie apart, and from
few of them training is later to find which inputs matter. Gains depend on what is trained: a free
network gained more from LCMD, and predicted worse while labels were few
([decision 42](../../docs/decisions/0042-tables-train-features.md)). Of classes, the uncertainty
due to the weights, by which LCMD, BAIT, BatchBALD, BALD and EPIG choose, says little about how
close a label is to be decided, which margin and entropy do; and in 384 dimensions a few hundred
labels leave every review about equally unknown."""


def comparison(found: Counts) -> str:
    """Counts in words."""
    return (
        f"{found.better} of {found.total} (by more than two standard errors in "
        f"{found.surely_better}; worse by as much in {found.surely_worse})"
    )


def default(column: str) -> str:
    """The method that `select` takes unless told; with two classes the margin is the entropy."""
    return {REVIEWS: "entropy", IMAGES: "margin"}.get(column, LCMD)


def default_counts(runs: Runs) -> Counts:
    """Of the defaults against random, all problems together."""
    parts = [counts(runs, default(column), RANDOM, [column], METRICS) for column in runs.columns]
    return Counts(*map(sum, zip(*parts, strict=True)))


def average_saved(runs: Runs, method: str) -> float | None:
    """Mean fraction of labels saved by a method, over problems and metrics."""
    return _mean([saved(runs, method, c, m, RANDOM) for c in runs.columns for m in METRICS])


def default_saved(runs: Runs) -> float | None:
    """Mean fraction of labels saved by the defaults, over problems and metrics."""
    return _mean([saved(runs, default(c), c, m, RANDOM) for c in runs.columns for m in METRICS])


def _mean(cells: Iterable[float | None]) -> float | None:
    known = [cell for cell in cells if cell is not None]
    return float(np.mean(known)) if known else None


def verdicts(runs: Runs) -> list[str]:
    """Each target, and what was measured."""
    lines = []
    methods = [name for name in TOGETHER if runs.has(name)]
    whole = {name: counts(runs, name, RANDOM, runs.columns, METRICS) for name in methods}
    for name, found in whole.items():
        if found.total:
            met = "met" if found.better == found.total else "missed"
            lines.append(
                f"Better than random at every budget beyond the first, {METHODS[name].title}: "
                f"**{met}**, {comparison(found)} cells."
            )
    found = default_counts(runs)
    if found.total:
        met = "met" if found.better == found.total else "missed"
        lines.append(
            f"Better than random at every budget beyond the first, the defaults of `select`: "
            f"**{met}**, {comparison(found)} cells."
        )
    for name in ONE_BY_ONE:
        found = counts(runs, LCMD, name, runs.columns, METRICS)
        if found.total:
            met = "met" if found.better == found.total else "missed"
            lines.append(
                f"LCMD ahead of {METHODS[name].title}: **{met}**, {comparison(found)} cells."
            )
    average = default_saved(runs)
    if average is not None:
        others = {name: average_saved(runs, name) for name in methods}
        known = {name: value for name, value in others.items() if value is not None}
        shown = ", ".join(f"{METHODS[name].title} {value:.0%}" for name, value in known.items())
        met = "met" if average >= TARGET else "missed"
        lines.append(
            f"At least {TARGET:.0%} of labels saved on average by the defaults: **{met}**, "
            f"{average:.0%}; {shown}."
        )
    return lines


def saved_table(runs: Runs, metric: Metric) -> str:
    """Labels saved by each method on each problem."""
    rows = []
    for name in METHODS:
        cells = [saved(runs, name, column, metric, RANDOM) for column in runs.columns]
        if name == RANDOM or all(cell is None for cell in cells):
            continue
        known = [cell for cell in cells if cell is not None]
        shown = [BLANK if cell is None else f"{cell:.0%}" for cell in cells]
        rows.append([METHODS[name].title, *shown, f"{np.mean(known):.0%}"])
    return table(["", *map(title, runs.columns), "mean"], rows)


def better_table(runs: Runs, than: str, methods: Iterable[str], metric: Metric) -> str:
    """In how many budgets beyond the first each method is better than another."""
    rows = []
    for name in methods:
        found = [counts(runs, name, than, [column], [metric]) for column in runs.columns]
        if any(cell.total for cell in found):
            shown = [
                f"{c.better} of {c.total} (+{c.surely_better}, −{c.surely_worse})"
                if c.total
                else BLANK
                for c in found
            ]
            rows.append([METHODS[name].title, *shown])
    return table(["", *map(title, runs.columns)], rows)


def _budgets(runs: Runs) -> str:
    """Of each problem that has records."""
    parts = []
    for column in runs.columns:
        method = next((name for name in METHODS if runs.records(name, column)), None)
        if method is not None:
            labels = budgets(runs, method, column)
            step = f"{len(labels) - 1} × {int(labels[1] - labels[0])}"
            parts.append(f"{title(column)} {int(labels[0])} + {step}")
    return f"Labels: {', '.join(parts)}. {_repeated(runs)}"


def _repeated(runs: Runs) -> str:
    """Whether runs that should begin alike did."""
    found = {c: max(initial_spread(runs, c, metric) for metric in METRICS) for c in runs.columns}
    unlike = [f"{spread:.4f} on {title(column)}" for column, spread in found.items() if spread]
    if not unlike:
        return "With the initial labels all methods have the same scores, seed by seed."
    return (
        "With the initial labels methods with the same seed should have the same scores, and "
        f"differ by at most {', '.join(unlike)}: those runs began from an initial mean without a "
        "seed, and another run would not repeat them exactly."
    )


def page(runs: Runs) -> str:
    """The whole page, Markdown."""
    others = [name for name in METHODS if name != RANDOM]
    parts = [
        INTRODUCTION,
        f"## Targets\n\n{bullets(verdicts(runs))}\n\nA cell is a problem, a metric (error or NLL) "
        "and a budget; means over seeds are compared, and standard errors are of differences "
        "between runs with the same seed.",
        REASONS,
        "![Error and NLL by the number of labels](curves.png)\n\nMeans over seeds; bands, of LCMD "
        "and random, are one standard error. Dashed are methods that choose points one by one.",
        "## Labels saved to reach random's final score\n\nOf mean curves. A method that does not "
        "reach it within the budget saves 0 %.",
        *(f"By {m.label}:\n\n{saved_table(runs, m)}" for m in METRICS),
        "## Budgets at which a method is better than random\n\nIn brackets, by more than two "
        "standard errors: better (+) and worse (−).",
        *(f"By {m.label}:\n\n{better_table(runs, RANDOM, others, m)}" for m in METRICS),
        f"## Settings\n\n{SETTINGS}\n\n{_budgets(runs)}\n\n{provenance.settings(runs, EXPERIMENT)}",
        f"## Time\n\n{provenance.times(runs, {'all methods': list(METHODS)})}",
        f"## Missing\n\n{provenance.missing(runs, EXPERIMENT)}",
    ]
    return "\n\n".join(parts) + "\n"


def write(results: Path) -> str | None:
    """Write the page and its figure; a headline for the index, or None without records."""
    return sections.publish(EXPERIMENT, results, page, headline, draw)


def headline(runs: Runs) -> str:
    """A line for the index."""
    average = default_saved(runs)
    if average is None:
        return "what to label next."
    found = default_counts(runs)
    classes = any(runs.records(default(column), column) for column in (REVIEWS, IMAGES))
    named = "LCMD on tables, the margin on classes" if classes else "LCMD on tables"
    return (
        f"the defaults ({named}) are better than random in {found.better} of {found.total} cells, "
        f"and save {average:.0%} of the labels on average."
    )
