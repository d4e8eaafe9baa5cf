"""Plain-text tables and the JSON record of a run."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

import lastlayer as ll

Row = dict[str, Any]


def print_table(title: str, rows: Sequence[Row]) -> None:
    """Print rows as aligned columns, numbers to the right; the first row names the columns."""
    print(f"\n{title}\n")
    if not rows:
        print("(nothing)")
        return
    names = list(rows[0])
    cells = [names, *([_text(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    right = [isinstance(rows[0][name], int | float) for name in names]
    for index, line in enumerate(cells):
        padded = [
            cell.rjust(width) if numeric else cell.ljust(width)
            for cell, width, numeric in zip(line, widths, right, strict=True)
        ]
        print("  ".join(padded).rstrip())
        if index == 0:
            print("  ".join("-" * width for width in widths))


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if value != value:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def environment() -> Row:
    """What the numbers depend on, besides the code."""
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{
            name: _version(name)
            for name in ("vbll", "scikit-learn", "ngboost", "transformers", "ray")
        },
        "lastlayer": ll.__version__,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({len(names)} logical cores)" if names else platform.machine()


def write_json(path: Path, config: Row, about: Row, sections: dict[str, list[Row]]) -> None:
    """Write everything that was measured, with what it was measured with but for where it goes."""
    config = {name: value for name, value in config.items() if name != "json"}
    record = {"config": config, "environment": about, "sections": sections}
    path.write_text(json.dumps(record, indent=1, default=str) + "\n")
    print(f"\nWritten to {path}")
