"""Errors of files, and checks that need no other library."""

from pathlib import Path


class FileError(ValueError):
    """A file that cannot be used, with what to do about it."""


def check_model_folder(folder: Path) -> None:
    """Raise if there is no folder of this name."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no model folder {folder}; `lastlayer fit` writes one")
