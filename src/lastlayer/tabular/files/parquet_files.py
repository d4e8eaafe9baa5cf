"""Parquet files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from .errors import FileError

MAX_ROWS = 50_000  # of a part
INDEX = re.compile(r"__index_level_\d+__")  # the name that pandas gives an unnamed index


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file.

    Args:
        path: of the file.
    """

    path: Path

    @property
    def names(self) -> list[str]:
        """Names of the columns, without an unnamed index of pandas."""
        names = self._open().schema_arrow.names
        return [name for name in names if not INDEX.fullmatch(name)]

    def batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows, of some columns."""
        try:
            yield from self._open().iter_batches(MAX_ROWS, columns=names)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _open(self) -> Any:
        try:
            # not buffered ahead, which would end with the whole file in memory
            return pa.parquet.ParquetFile(self.path, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> FileError:
        message = str(error).splitlines()[0]
        return FileError(f"{self.path} is a damaged Parquet file: {message}; write it again")
