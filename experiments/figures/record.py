"""Records of figures: what was drawn, in numbers, beside the pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..harness import records


def write(folder: Path, name: str, record: dict[str, Any]) -> None:
    """Write a record with versions and time to `folder/name.json`."""
    record = record | {"versions": records.versions() | {"time": records.now()}}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record) + "\n")


def read(results: Path, name: str) -> dict[str, Any] | None:
    """The record `name/name.json` of the results, if there is one."""
    path = results / name / f"{name}.json"
    record: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return record


def write_page(results: Path, name: str, *parts: str) -> None:
    """Write the page of an experiment next to its record."""
    written = (
        f"Written by `python -m experiments report` from [{name}.json]({name}.json); do not edit. "
        f"`python -m experiments {name} --output results/{name}` makes record and figures anew."
    )
    title, *rest = parts
    text = "\n\n".join([f"# {title}", written, *rest]) + "\n"
    (results / name / "README.md").write_text(text, encoding="utf-8")
