"""Records of runs: one JSON line each, appended whole, never rewritten unless asked."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import warnings
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

import lastlayer as ll

Record = dict[str, Any]


def path_of(results: Path, dataset: str, method: str) -> Path:
    """Where the records of a method on a data set are."""
    return results / "uci" / f"{dataset}-{method}.jsonl"


def versions() -> dict[str, str]:
    """What figures depend on, besides the configuration."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("gpytorch", "scipy", "vbll"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found | {"lastlayer": ll.__version__}


def now() -> str:
    """The time, for a record."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def read(path: Path) -> list[Record]:
    """All whole records of a file; for a seed that is there twice, the later one."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [_parse(line, f"{path}: line {at}") for at, line in enumerate(lines, 1)]
    by_seed = {record["config"]["seed"]: record for record in found if record}
    return [by_seed[seed] for seed in sorted(by_seed)]


def _parse(line: str, where: str) -> Record | None:
    """A record, or with a warning none."""
    try:
        record: Record = json.loads(line)
        record["config"]["seed"]
    except (json.JSONDecodeError, KeyError, TypeError):
        if line.strip():
            warnings.warn(f"{where} is no whole record, skipped", stacklevel=3)
        return None
    return record


def append(path: Path, records: Iterable[Record]) -> None:
    """Add records in one write, so that several processes may, and none is written in part."""
    text = "".join(json.dumps(record) + "\n" for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a line that was cut short
            text = "\n" + text
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
