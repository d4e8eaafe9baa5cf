"""The page of results: "ours | paper" tables and figures, written from the records of runs.

    python -m experiments report

Deterministic: the same records give the same page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..method import Method
from . import comparison, figures, sections
from .ablation import ablation
from .luck import luck
from .statistics import Runs

RESULTS = Path("results")

INTRODUCTION = """\
# Results

Written by `python -m experiments report` from the records in [uci](uci), one line per run; do not
edit. `python -m experiments uci --methods all` makes the records, and runs only what has none."""

READING = """\
Mean ± standard error over seeds; lower is better. Each seed has its own random split, so standard
errors hold the luck of splits and of initial values. Marked as in the paper: **bold** are the best
method and those less than one standard error (the best's) behind it, among single-pass methods and,
unless a single-pass method is better than all of them, among those of several passes. (This gives
all of the paper's marks and one that it does not print: Ensemble on Concrete, RMSE.)"""

CAVEATS = """\
- Boston has a variable (`B`) built on a racist assumption. The data set is here only because the
  paper's tables have it; use it for nothing else.
- Some rows occur more than once: 25 of Concrete, 41 of Power and 240 of Wine repeat another row.
  Splits are random, as in the paper, so copies of test examples are among the training examples,
  which favours methods that remember, above all on Wine.
- The target of Wine takes only whole numbers, so a density can gain by being narrow around them."""


def page(runs: Runs, trees: Mapping[str, Any] | None = None) -> str:
    """The whole page, Markdown.

    Args:
        runs: all records.
        trees: the record of `experiments.splits`, if there is one.
    """
    methods = runs.main
    parts = [
        INTRODUCTION,
        f"## Regression on UCI data\n\n{comparison.summary(runs)}\n\n{READING}",
        f"### NLL\n\n{sections.compared_table(runs, methods, 'nll')}\n\n![NLL](uci/nll.png)",
        f"### RMSE\n\n{sections.compared_table(runs, methods, 'rmse')}\n\n![RMSE](uci/rmse.png)",
        comparison.misprints(runs),
        f"### Against the paper\n\n{comparison.against_paper(runs)}",
        f"### Luck of the splits\n\n{luck(runs, trees)}" if trees else "",
    ]
    if runs.has("ours"):
        parts.append(f"### Our configuration\n\n{comparison.ours(runs)}")
        parts.append(f"#### Ablation\n\n{ablation(runs)}")
    parts += [
        "### Intervals and CRPS\n\nCoverage of central 90 % intervals, in percent: 90 is right, "
        "less is overconfident.\n\n"
        + sections.metric_table(runs, methods, "coverage", 1, False, percent=True),
        "![Coverage](uci/coverage.png)",
        "Their mean width, in units of the target: narrow is good only where the coverage is right."
        "\n\n" + sections.metric_table(runs, methods, "width", 2, False),
        "CRPS, in units of the target.\n\n" + sections.metric_table(runs, methods, "crps", 3, True),
        f"### Single seeds\n\n{sections.stability(runs, methods)}",
        f"### Time\n\n{sections.times(runs)}",
        f"### Settings\n\n{sections.settings(runs)}\n\n{sections.epochs(runs, methods)}",
        f"### About the data\n\n{CAVEATS}",
        f"### Missing\n\n{sections.missing(runs)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def write(results: Path = RESULTS, methods: Mapping[str, type[Method]] | None = None) -> Path:
    """Write `results`/README.md and its figures.

    Args:
        results: the folder that holds uci/*.jsonl.
        methods: those of the tables, in their order; the registry's if None.
    """
    if methods is None:
        from ..methods import METHODS  # late, for it imports every baseline

        methods = METHODS
    runs = Runs.load(results / "uci", methods)
    (results / "uci").mkdir(parents=True, exist_ok=True)
    figures.write(runs, results / "uci")
    path = results / "README.md"
    splits = results / "splits" / "splits.json"
    trees = json.loads(splits.read_text()) if splits.exists() else None
    path.write_text(page(runs, trees), encoding="utf-8")
    return path


def main() -> None:
    """Write the page of this repository's results."""
    print(write())


if __name__ == "__main__":
    main()
