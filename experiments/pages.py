"""The pages of results: one for each experiment, written from its records, and an index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .active import page as active
from .bandits import classes
from .bandits import page as bandits
from .bayesopt import page as bayesopt
from .figures import hyperparameters, regularizers, toy
from .harness.tables import bullets
from .images import page as images
from .ood import page as ood
from .text import page as text
from .uci import page as uci

# From the folder of results to a line for the index, or None where there are no records.
PAGES: dict[str, Callable[[Path], str | None]] = {
    "uci": uci.write,
    "images": images.write,
    "text": text.write,
    "bandits": bandits.write,
    "classes": classes.write,
    "bayesopt": bayesopt.write,
    "active": active.write,
    "ood": ood.write,
    "toy": toy.write_page,
    "regularizers": regularizers.write_page,
    "hyperparameters": hyperparameters.write_page,
}

INTRODUCTION = """\
# Results

Written by `python -m experiments report` from the records beside each page; do not edit.
[How to run the experiments](../docs/reproducing.md)."""

BENCHMARKS = """\
The files `*.json` here are records of speed, memory and estimators for tables, which
`benchmarks/tables.py` puts into [performance](../docs/performance.md), [tables](../docs/tables.md)
and other pages."""


def write(results: Path) -> list[Path]:
    """Write all pages for which there are records, then the index; what was written."""
    found = {name: write_page(results) for name, write_page in PAGES.items()}
    lines = {name: line for name, line in found.items() if line is not None}
    index = bullets([f"[{name}]({name}/README.md): {line}" for name, line in lines.items()])
    results.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join([INTRODUCTION, index, BENCHMARKS]) + "\n"
    (results / "README.md").write_text(text, encoding="utf-8")
    return [*(results / name / "README.md" for name in lines), results / "README.md"]
