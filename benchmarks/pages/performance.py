"""Tables of docs/performance.md and of the decision on the mean softmax."""

from __future__ import annotations

import math
import statistics
from typing import Any

from benchmarks.markdown import cell, number, provenance, record, table

LINEAR = "`nn.Linear` + cross-entropy"


def targets() -> str:
    """The promised ratios: eager, compiled, and memory."""
    measured = record("heads.json")
    rows = []
    for row in measured["sections"]["targets"]:
        faster = row["against"] == "vbll"
        ratio = f"{number(row['ratio'])}× {'faster' if faster else 'the time'}"
        rows.append(_line(row, row["phase"], "`vbll`" if faster else LINEAR, ratio))
    for row in record("compiled.json")["sections"]["compiled"]:
        ratio = f"{number(row['compiled/compiled'])}× the time"
        rows.append(_line(row, "train compiled", f"{LINEAR}, compiled", ratio))
    for row in measured["sections"]["memory"]:
        if row["target"]:
            resident = row["resident_MB"] / row["parameters_MB"]
            ratio = f"{row['allocated/parameters']:.1f}× allocated, {resident:.1f}× resident"
            rows.append(_line(row, "peak memory", "its parameters", ratio))
    names = ["step", "size", "against", "measured", "target", ""]
    return f"{table(names, rows)}\n\n{provenance(measured)}"


def _line(row: dict[str, Any], phase: str, against: str, ratio: str) -> list[str]:
    target = row["target"].replace(" ", "\N{NO-BREAK SPACE}") + "×"
    what = f"{phase}, {row['model']}"
    return [what, row["size"], against, ratio, target, row["verdict"].lower()]


def section(name: str, file: str = "heads.json") -> str:
    """A section of the benchmark as it was printed."""
    rows = record(file)["sections"][name]
    names = list(rows[0])
    return table(names, [[cell(row.get(name, "")) for name in names] for row in rows])


def selecting() -> str:
    """Seconds to choose a batch from a large pool."""
    measured = record("selecting.json")
    return f"{section('selecting', 'selecting.json')}\n\n{provenance(measured)}"


def grid() -> str:
    """The ranges of the ratios over the sizes of the grid, but for predictions of classes."""
    measured = record("grid.json")
    rows = [
        row
        for row in measured["sections"]["grid"]
        if row["phase"] == "train" or row["model"].startswith("regression")
    ]
    return f"{_ranges(rows)}\n\n{provenance(measured)}"


def predict() -> str:
    """The same ranges of predictions of classes, and the sizes in the middle one by one."""
    measured = record("predict.json")
    rows = measured["sections"]["predict"]
    middle = [row for row in rows if row["size"].startswith("B128 N640 ")]
    names = [name for name in middle[0] if name != "phase"]
    cells = [[cell(row[name]) for name in names] for row in middle]
    return f"{_ranges(rows)}\n\n{table(names, cells)}\n\n{provenance(measured)}"


def _ranges(measured: list[dict[str, Any]]) -> str:
    cases: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in measured:
        cases.setdefault((row["phase"], row["model"]), []).append(row)
    lines = []
    for (phase, model), rows in cases.items():
        faster = [row["vbll/ours"] for row in rows if not math.isnan(row["vbll/ours"])]
        slower = [row["ours/linear"] for row in rows]
        line = [f"{phase}, {model}", str(len(rows)), str(len(faster)), _span(faster), _span(slower)]
        lines.append(line)
    names = ["step", "sizes", "of them `vbll` can", "`vbll` / ours", "ours / `nn.Linear`"]
    return table(names, lines)


def _span(values: list[float]) -> str:
    """Lowest, middle and highest."""
    if not values:
        return ""
    return " – ".join(number(pick(values)) for pick in (min, statistics.median, max))


def softmax() -> str:
    """Candidates for the deterministic predictive."""
    measured = record("softmax.json")
    names = ["max error", "mean error", "mean KL", "ms, K=10", "ms, K=100"]
    rows = [
        [row["approximation"], *(cell(row[name]) for name in names)] for row in measured["rows"]
    ]
    return f"{table(['approximation', *names], rows)}\n\n{provenance(measured)}"
