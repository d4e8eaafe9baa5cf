"""Records of runs: one JSON line each, appended whole, never rewritten unless asked."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import warnings
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

import lastlayer as ll

Record = dict[str, Any]


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """What figures depend on, besides the configuration; packages that are there count."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found | {"lastlayer": ll.__version__}


def now() -> str:
    """The time, for a record."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def read(path: Path, identity: Sequence[str] = ("seed",)) -> list[Record]:
    """All complete records of a file, in order; of two of the same run the later one.

    Args:
        path: of the file, which need not exist.
        identity: names in `config` that tell the runs of the file apart.
    """
    lines = path.read_text().splitlines() if path.exists() else []
    found = [_parse(line, identity, f"{path}: line {at}") for at, line in enumerate(lines, 1)]
    by_run = {
        tuple(record["config"][name] for name in identity): record for record in found if record
    }
    return [by_run[run] for run in sorted(by_run)]


def _parse(line: str, identity: Sequence[str], where: str) -> Record | None:
    """A record, or with a warning none."""
    try:
        record: Record = json.loads(line)
        for name in identity:
            record["config"][name]
    except (json.JSONDecodeError, KeyError, TypeError):
        if line.strip():
            warnings.warn(f"{where} is no complete record, skipped", stacklevel=3)
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
