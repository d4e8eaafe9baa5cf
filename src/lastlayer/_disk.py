"""Atomic writing of files and folders: no partial file is left."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file beside a path, which takes its place if all goes well, and else disappears.

    Whatever interrupts the writing, there is afterwards what was there, or all that is new.
    """
    path = path.resolve()  # what a link names, not the link
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is not an ordinary file; name another")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"{path} is write-protected; name another, or permit writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}-", dir=path.parent)
    except OSError as error:
        reason = f"cannot write into {path.parent}: {error.strerror}; choose another folder"
        raise OSError(error.errno, reason) from error  # of the same kind
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        open_to_others(partial)
        to_disk(partial)
        partial.replace(path)
        to_disk(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def open_to_others(path: Path) -> None:
    """Permit what the user permits of new files and folders; temporary ones permit nothing."""
    mask = os.umask(0o077)  # there is no way to ask but by setting it
    os.umask(mask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, have reached the disk."""
    if os.name == "nt" and path.is_dir():
        return  # folders cannot be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
