"""The page of the UCI tables: measured beside the paper's, from the records of runs.

Deterministic: the same records give the same page.
"""

from __future__ import annotations

import functools
from pathlib import Path

from ..harness import figures, provenance, sections
from ..harness.statistics import Runs
from ..harness.tables import bullets
from . import beyond, comparison
from .published import PUBLISHED
from .run import EXPERIMENT
from .task import COVERAGE, CRPS, NLL, RMSE, WIDTH

INTRODUCTION = """\
# Regression on UCI data

Written by `python -m experiments report` from the records in this folder, one line per run; do not
edit. `python -m experiments uci --methods all` makes the records, and runs only what has none."""

READING = """\
Mean ± standard error over seeds; lower is better. Each seed has its own random split, so standard
errors hold the luck of splits and of initial values. Marked as in the paper: **bold** are the best
method and those less than one standard error (the best's) behind it, among single-pass methods and,
unless a single-pass method is better than all of them, among those of several passes. (This gives
all of the paper's marks and one that it does not print: Ensemble on Concrete, RMSE.)"""

EPOCHS = """\
Epochs chosen on validation data: median over seeds, and in brackets how many seeds chose the
largest number allowed. Where nothing is chosen so, as by the Gaussian process, evaluations of the
objective."""

CAVEATS = """\
- Boston has a variable (`B`) built on a racist assumption. The data set is here only because the
  paper's tables have it; use it for nothing else.
- Some rows of Concrete, Power and above all Wine repeat another. Splits are random, as in the
  paper, so copies of test examples are among the training examples, which favours methods that
  remember.
- The target of Wine takes only integer values: a density can gain by being narrow around them."""


def summary(runs: Runs) -> list[str]:
    """What was aimed at, and what was reached."""
    lines = [comparison.reproduced(runs), comparison.baselines(runs)]
    if runs.has("ours"):
        lines.append(beyond.headline(runs))
    absent = sum(len(seeds) for row in runs.missing().values() for seeds in row.values())
    return [*lines, f"{absent} runs are missing: see the end of this page."] if absent else lines


def page(runs: Runs) -> str:
    """The whole page, Markdown."""
    methods = runs.main
    compared = functools.partial(sections.compared_table, runs, methods, published=PUBLISHED)
    parts = [
        INTRODUCTION,
        f"{bullets(summary(runs))}\n\n{READING}",
        f"## NLL\n\n{compared(NLL)}\n\n![NLL](nll.png)",
        f"## RMSE\n\n{compared(RMSE)}\n\n![RMSE](rmse.png)",
        comparison.misprints(runs),
        f"## Against the paper\n\n{comparison.against_paper(runs)}",
    ]
    if runs.has("ours"):
        parts.append(f"## Our configuration\n\n{beyond.duels(runs)}")
        parts.append(f"### Ablation\n\n{beyond.ablation(runs)}")
    epochs = sections.method_table(runs, methods, functools.partial(comparison.chosen_epochs, runs))
    parts += [
        "## Intervals and CRPS\n\nCoverage of central 90 % intervals, in percent: 90 is right, "
        "less is overconfident.\n\n" + sections.metric_table(runs, methods, COVERAGE, mark=False),
        "![Coverage](coverage.png)",
        "Their mean width, in units of the target: narrow is good only where the coverage is right."
        "\n\n" + sections.metric_table(runs, methods, WIDTH, mark=False),
        "CRPS, in units of the target.\n\n" + sections.metric_table(runs, methods, CRPS),
        f"## Single seeds\n\n{sections.stability(runs, methods, NLL)}",
        f"## Time\n\n{provenance.times(runs, _groups(runs))}",
        f"## Settings\n\n{provenance.settings(runs, EXPERIMENT)}\n\n{EPOCHS}\n\n{epochs}",
        f"## About the data\n\n{CAVEATS}",
        f"## Missing\n\n{provenance.missing(runs, EXPERIMENT)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _groups(runs: Runs) -> dict[str, list[str]]:
    """Methods whose times are told together."""
    return {
        "the paper's methods": [method for method in runs.main if method != "ours"],
        "ours": [method for method in runs.main if method == "ours"],
        "its ablation": runs.variants("ours"),
        "variants of the paper's": runs.variants(*(m for m in runs.main if m != "ours")),
    }


def write(results: Path) -> str | None:
    """Write the page and its figures; a headline for the index, or None without records."""
    runs = Runs.load(EXPERIMENT, results)
    if not runs.by_cell:
        return None
    folder = results / EXPERIMENT.name
    for metric in (NLL, RMSE, COVERAGE):
        nominal = 90.0 if metric is COVERAGE else None
        published = None if metric is COVERAGE else PUBLISHED
        figure = figures.draw(runs, metric, published, highlight="ours", nominal=nominal)
        # Without the version of matplotlib, the same records give the same file for longer.
        figure.savefig(folder / f"{metric.name}.png", metadata={"Software": None})
    (folder / "README.md").write_text(page(runs), encoding="utf-8")
    line = comparison.reproduced(runs)
    return f"{line} {beyond.headline(runs)}" if runs.has("ours") else line
