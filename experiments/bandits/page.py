"""The page of the wheel bandit, from the records of runs.

Deterministic: the same records give the same page.
"""

from __future__ import annotations

from pathlib import Path

from ..harness import provenance, sections
from ..harness.statistics import Metric, Runs
from ..harness.tables import bullets
from . import choice
from .figure import draw
from .methods import METHODS
from .published import PUBLISHED
from .run import EXPERIMENT, LINEAR
from .task import CUMULATIVE, LAST, METRICS, SIMPLE

INTRODUCTION = f"""\
# Wheel bandit

Written by `python -m experiments report` from the records in this folder, one line per run; do not
edit. `python -m experiments bandits` makes the records, and runs only what has none.

The paper's section on bandits: 80,000 contexts, uniform in the unit disc, and five arms, of which
one is safe (1.2) and each of the others pays 50 in its quadrant beyond the radius δ, and 1
elsewhere. Cumulative regret is that of all contexts, simple regret that of the last {LAST}, in
percent of the expected regret of an arm at random. An agent that always pulls the safe arm has more
than 100."""

READING = """\
Mean ± standard error over seeds; columns are δ. **Bold** are the best and those less than one
standard error (the best's) behind it, among what was measured and among the paper's."""

SETTINGS = """\
Every agent sees contexts one at a time or, with a network, 20 between two updates. The paper says
of VBLL: two layers of 100 units, batches of 512, learning rate 3e-3, 100 gradient steps every 20
contexts, gradients clipped at norm 1, degrees of freedom, noise scale and prior scale 1. It leaves
open, and here is: AdamW, begun anew at every update, with weight decay 0.01 on the backbone alone;
ReLU; rewards as they are; no initial pulls; S_k as initialised by this package. Ours has two layers
of 100 units too, of which half of the first are squared, rewards in units of 50, exact posteriors
of the last layer between trainings of features on the squared error, one noise for all arms,
batches in which rare large rewards are not rare and which grow with the observations, and trains
when these have grown by a tenth, with a warm-up and an ε of AdamW for which gradients of noise make
small steps; a training is undone if the noise is larger after it or all units are dead. It is one
configuration for all δ, chosen on seeds from 100 on, which are not in these tables; that trainings
fail was first seen on seeds that are, 0 and 2 (decisions
[33](../../docs/decisions/0033-arms-share-their-noise.md),
[41](../../docs/decisions/0041-batches-that-grow.md) and
[47](../../docs/decisions/0047-units-that-die.md)).
LinFullPost, LinDiagPost and NeuralLinear are
those of Riquelme, Tucker & Snoek (2018), as their code has them; the settings called MR are not
published: here one that may be near them."""


def beaten(runs: Runs, method: str, metric: Metric) -> tuple[int, int]:
    """In how many columns a method is at or below the paper's VBLL, and how many it has."""
    found = {column: runs.estimate(method, column, metric.name) for column in runs.columns}
    cells = {column: cell.mean for column, cell in found.items() if cell is not None}
    lower = [c for c, mean in cells.items() if mean <= PUBLISHED.cells["vbll", c, metric.name].mean]
    return len(lower), len(cells)


def summary(runs: Runs) -> list[str]:
    """How agents with a network compare with the paper's VBLL."""
    lines = []
    for method in ("ours", "vbll"):
        if runs.has(method):
            counts = [beaten(runs, method, metric) for metric in METRICS]
            parts = [
                f"{metric.label} in {lower} of {total}"
                for metric, (lower, total) in zip(METRICS, counts, strict=True)
            ]
            lines.append(
                f"{METHODS[method].title} is at or below the paper's VBLL in {', in '.join(parts)} "
                f"columns ({_seeds(runs, method)} in each)."
            )
    return lines


def _seeds(runs: Runs, method: str) -> str:
    """How many seeds the columns of a method have that are there."""
    counts = [len(runs.records(method, column)) for column in runs.columns]
    found = sorted({count for count in counts if count})
    count = f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"
    return f"{count} seed" if count == "1" else f"{count} seeds"


def page(runs: Runs, results: Path) -> str:
    """The whole page, Markdown."""
    known = sections.published_methods(PUBLISHED)
    methods = [method for method in runs.main if runs.has(method) or method in known]
    groups = {
        "agents with a network": [name for name in METHODS if name not in LINEAR],
        "linear agents": LINEAR,
    }
    parts = [
        INTRODUCTION,
        bullets(summary(runs)) if summary(runs) else "",
        "![Cumulative regret by the number of contexts](curves.png)\n\nMeans over as many seeds as "
        "the legend says; bands are one standard error.",
        READING,
        f"## Cumulative regret\n\n{sections.compared_table(runs, methods, CUMULATIVE, PUBLISHED)}",
        f"## Simple regret\n\n{sections.compared_table(runs, methods, SIMPLE, PUBLISHED)}",
        f"## Settings\n\n{SETTINGS}\n\n{provenance.settings(runs, EXPERIMENT)}",
        choice.section(results),
        f"## Time\n\n{provenance.times(runs, groups)}",
        f"## Missing\n\n{provenance.missing(runs, EXPERIMENT)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(runs: Runs) -> str:
    """A line for the index."""
    found = summary(runs)
    return found[0] if found else "the wheel bandit: linear agents."


def write(results: Path) -> str | None:
    """Write the page and its figure; a headline for the index, or None without records."""
    return sections.publish(EXPERIMENT, results, lambda runs: page(runs, results), headline, draw)
