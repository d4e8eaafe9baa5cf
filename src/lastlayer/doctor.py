"""What is installed here: versions, threads, devices, and which extras miss what.

Needs nothing but the base install, so that it can say what is missing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator

DEVELOPERS = ("authors", "dev", "lint", "peers", "test")  # extras of the repository


def lines() -> Iterator[str]:
    """The findings, line by line."""
    import torch

    from . import __version__

    system = f"{platform.system()} {platform.machine()}"
    yield f"lastlayer {__version__}, Python {platform.python_version()}, {system}"
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    yield f"torch {torch.__version__}, {_count(threads, 'thread')} on {_count(cores, 'core')}"
    yield f"devices: {', '.join(_devices())}"
    needs = requirements()
    base = [name for name in needs.pop("") if version(name) is None]
    yield f"base install: {_missing(base, 'lastlayer')}"
    width = max(map(len, needs))
    for extra, names in sorted(needs.items()):
        absent = [name for name in names if version(name) is None]
        yield f"extra {extra:{width}}  {_missing(absent, f'lastlayer[{extra}]')}"


def requirements(distribution: str = "lastlayer") -> dict[str, list[str]]:
    """Names of required packages by extra, "" for the base install; not the developers'."""
    found: dict[str, list[str]] = {"": []}
    for text in importlib.metadata.requires(distribution) or []:
        package = re.match(r"[\w.-]+", text)
        extra = re.search(r"""extra == ['"]([\w.-]+)['"]""", text)
        group = extra[1] if extra else ""
        if package and group not in DEVELOPERS:
            found.setdefault(group, []).append(package[0])
    return found


def version(package: str) -> str | None:
    """The version that is installed, None if none is."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> list[str]:
    import torch

    found = ["cpu"]
    found += [f"cuda ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    return found


def _missing(absent: list[str], install: str) -> str:
    if not absent:
        return "complete"
    return f"without {', '.join(absent)}: pip install '{install}'"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
