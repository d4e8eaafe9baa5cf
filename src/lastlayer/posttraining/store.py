"""Features with targets and weights, in memory while they fit and then in files."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

HEADER_BYTES = 1024  # of a cache file; room for three tensors' names, types, shapes and places
SAFETENSORS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
}


class Features(NamedTuple):
    """Features of all the data with targets and weights, one row per example."""

    features: Tensor  # (T, N)
    target: Tensor  # (T, …)
    weight: Tensor | None  # (T,) or, for regression, (T, K)


class Store:
    """Collects rows: lists while they fit, then files, of which none is a cache before it is whole.

    Args:
        path: of a file to keep, or None.
        max_memory_bytes: of features in main memory.
    """

    def __init__(self, path: Path | str | None, max_memory_bytes: int) -> None:
        self.path = None if path is None else Path(path)
        if self.path is not None and self.path.exists():
            raise FileExistsError(
                f"{self.path} exists; delete it, or read it with safetensors.torch.load_file"
            )
        self.max_memory_bytes = max_memory_bytes
        self.parts: list[Features] = []
        self.files: dict[str, _RowFile] = {}
        self.like: Features | None = None  # no rows, but their types and widths
        self.num_rows = self.num_bytes = 0

    def __enter__(self) -> Store:
        return self

    def append(self, rows: Features) -> None:
        """Add the rows of a batch."""
        if self.like is None:
            none: list[Any] = [None if part is None else part[:0].clone() for part in rows]
            self.like = Features(*none)
        width = self.like.features.shape[-1]
        if rows.features.shape[-1] != width:
            raise ValueError(
                "features must be as wide in every batch, got "
                f"{rows.features.shape[-1]} after {width}"
            )
        if (rows.weight is None) != (self.like.weight is None):
            raise ValueError("either all batches have weights or none; some had, some had not")
        self.num_rows += len(rows.features)
        self.num_bytes += rows.features.nbytes
        self.parts.append(rows)
        if self.files or self.path is not None or self.num_bytes > self.max_memory_bytes:
            self._write()

    def _write(self) -> None:
        """Move the rows that are in memory to the files."""
        for part in self.parts:
            for name, tensor in part._asdict().items():
                if tensor is not None:
                    if name not in self.files:
                        keep = self.path if name == "features" else None
                        self.files[name] = _RowFile(keep)
                    self.files[name].append(tensor)
        self.parts = []

    def finish(self) -> Features:
        """All the rows."""
        if not self.num_rows or self.like is None:
            raise ValueError("data holds no examples")
        if not self.files:
            columns = zip(*self.parts, strict=True)
            whole: list[Any] = [None if one[0] is None else torch.cat(one) for one in columns]
            return Features(*whole)
        if self.path is not None:
            self._complete(self.path)
        mapped = {
            name: file.mapped(self.num_rows, getattr(self.like, name))
            for name, file in self.files.items()
        }
        return Features(mapped["features"], mapped["target"], mapped.get("weight"))

    def _complete(self, path: Path) -> None:
        """Append what belongs to the features, and write the header that makes it a cache."""
        header: dict[str, Any] = {}
        end = 0
        for name, file in self.files.items():
            like: Tensor = getattr(self.like, name)
            start, end = end, end + file.num_bytes
            header[name] = {
                "dtype": SAFETENSORS[like.dtype],
                "shape": [self.num_rows, *like.shape[1:]],
                "data_offsets": [start, end],
            }
        text = json.dumps(header).encode()
        whole = self.files["features"]
        for name, file in self.files.items():
            if name != "features":
                file.copy_to(whole)
        whole.file.seek(0)
        whole.file.write((HEADER_BYTES - 8).to_bytes(8, "little") + text.ljust(HEADER_BYTES - 8))
        whole.file.flush()
        os.fsync(whole.file.fileno())
        whole.keep_as(path)

    def __exit__(self, *error: object) -> None:
        for file in self.files.values():
            file.discard()  # if interrupted


class _RowFile:
    """The rows of one tensor in a file, which is temporary unless it is kept.

    Args:
        keep: where it will be kept; then it begins with room for a header.
    """

    def __init__(self, keep: Path | None) -> None:
        if keep is None:
            handle, name = tempfile.mkstemp(prefix="lastlayer-", suffix=".partial")
            self.path, self.file = Path(name), os.fdopen(handle, "w+b")
        else:
            self.path = keep.with_name(keep.name + ".partial")
            self.file = open(self.path, "w+b")  # noqa: SIM115  # closed by `mapped` or `discard`
        self.offset = 0 if keep is None else HEADER_BYTES
        self.file.write(b"\0" * self.offset)
        self.num_bytes = 0
        self.kept = False

    def append(self, rows: Tensor) -> None:
        if rows.numel():
            self.file.write(rows.contiguous().view(torch.uint8).numpy().data)
            self.num_bytes += rows.nbytes

    def copy_to(self, other: _RowFile) -> None:
        """Append the rows to another file."""
        self.file.seek(self.offset)
        shutil.copyfileobj(self.file, other.file)

    def keep_as(self, path: Path) -> None:
        """Become a file to keep, in one step."""
        self.file.close()
        os.replace(self.path, path)
        self.path, self.kept = path, True

    def mapped(self, num_rows: int, like: Tensor) -> Tensor:
        """The rows, read where they are used."""
        self.file.close()
        shape = (num_rows, *like.shape[1:])
        if not self.num_bytes:
            return like.new_empty(shape)
        size = self.offset + self.num_bytes
        file = torch.from_file(str(self.path), shared=False, size=size, dtype=torch.uint8)
        self.discard()
        return file[self.offset :].view(like.dtype).reshape(shape)

    def discard(self) -> None:
        """Delete the file unless it is kept; a mapping lives on, where the system allows it."""
        self.file.close()
        if self.kept:
            return
        if os.name == "nt":
            atexit.register(self.path.unlink, missing_ok=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
