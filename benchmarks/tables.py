"""Write the tables of README.md and docs/ from the records in results/.

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; everything between is
replaced. `--check` changes nothing and fails if a table is not what its record says.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"


def table(names: list[str], rows: list[list[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.2g}" if value < 10 else f"{value:.1f}"


def provenance(record: dict[str, Any]) -> str:
    about = record["environment"]
    parts = [about["cpu"], f"torch {about['torch']}"]
    parts += [f"vbll {about['vbll']}"] if about.get("vbll") else []
    return f"Measured {about['time'][:10]} on {', '.join(parts)}."


def heads() -> str:
    """The promised ratios."""
    record = json.loads((RESULTS / "heads.json").read_text())
    rows = []
    for row in record["sections"]["targets"]:
        faster = row["against"] == "vbll"
        ratio = f"{number(row['ratio'])}× {'faster' if faster else 'the time'}"
        what = f"{row['phase']}, {row['model']}"
        against = "`vbll`" if faster else "`nn.Linear` + cross-entropy"
        target = row["target"].replace(" ", " ") + "×"
        rows.append([what, row["size"], against, ratio, target, row["verdict"].lower()])
    for row in record["sections"].get("memory", []):
        if row["target"]:
            resident = row["resident_MB"] / row["parameters_MB"]
            multiple = f"{row['allocated/parameters']:.1f}× allocated, {resident:.1f}× resident"
            limit = f"{row['target'].replace(' ', ' ')}×"
            rows.append(
                [
                    f"peak memory, {row['model']}",
                    row["size"],
                    "",
                    multiple,
                    limit,
                    f"{row['verdict'].lower()}, by allocated",
                ]
            )
    names = ["step", "size", "against", "measured", "target", ""]
    return f"{table(names, rows)}\n\n{provenance(record)}"


def section(name: str, record: str = "heads.json") -> str:
    """A section of the benchmark as it was printed."""
    rows = json.loads((RESULTS / record).read_text())["sections"][name]
    names = list(rows[0])
    return table(names, [[cell(row.get(name, "")) for name in names] for row in rows])


def cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return "–" if math.isnan(value) else f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def softmax() -> str:
    """Candidates for the deterministic predictive."""
    record = json.loads((RESULTS / "softmax.json").read_text())
    names = ["max error", "mean error", "mean KL", "ms, K=10", "ms, K=100"]
    rows = [[row["approximation"], *(cell(row[name]) for name in names)] for row in record["rows"]]
    return f"{table(['approximation', *names], rows)}\n\n{provenance(record)}"


Tables = dict[str, Callable[[], str]]
TABLES: dict[Path, Tables] = {
    ROOT / "README.md": {"heads": heads},
    ROOT / "docs" / "performance.md": {
        "targets": partial(section, "targets"),
        "memory": partial(section, "memory"),
        "scaling": partial(section, "scaling"),
        "backbone": partial(section, "backbone"),
        "cancellation": partial(section, "cancellation"),
        "profile": partial(section, "profile", "profile.json"),
    },
    ROOT / "docs" / "decisions" / "0005-quadrature-for-the-mean-softmax.md": {"softmax": softmax},
}


def rendered(page: Path) -> str:
    """The page with its tables made anew."""
    text = page.read_text()
    for name, make in TABLES[page].items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if begin not in text or end not in text:
            raise SystemExit(f"{page.relative_to(ROOT)} has no place for the table {name!r}")
        before, rest = text.split(begin)
        text = f"{before}{begin}{make()}\n{end}{rest.split(end)[1]}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare, and fail if different")
    check = parser.parse_args().check
    stale = []
    for page in TABLES:
        text = rendered(page)
        if text != page.read_text():
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(text)
    print("changed:" if stale else "nothing changed", *stale)
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
