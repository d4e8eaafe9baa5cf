"""The folder of all data sets: the one that LASTLAYER_DATA names, else `data`."""

from __future__ import annotations

import os
from pathlib import Path


def root() -> Path:
    """The folder of all data."""
    return Path(os.environ.get("LASTLAYER_DATA", "data"))


def find(name: str, otherwise: str) -> Path:
    """A file of the folder; an error that says how to get it if it is not there.

    Args:
        name: path within the folder.
        otherwise: the command that fetches it.
    """
    path = root() / name
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path}; set LASTLAYER_DATA to the folder that holds {name}, or fetch it "
            f"with: {otherwise}"
        )
    return path
