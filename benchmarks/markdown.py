"""Markdown tables from the records in results/."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"


def record(name: str) -> dict[str, Any]:
    """A record of results/ by its file name."""
    loaded: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return loaded


def table(names: list[str], rows: list[list[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.2g}" if value < 10 else f"{value:.1f}"


def provenance(measured: dict[str, Any], *peers: str) -> str:
    about = measured["environment"]
    parts = [about["cpu"], f"torch {about['torch']}"]
    parts += [f"{peer} {about[peer]}" for peer in peers or ("vbll",) if about.get(peer)]
    return f"Measured {about['time'][:10]} on {', '.join(parts)}."


def cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return "–" if math.isnan(value) else f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
