"""Batches of data sets that need not fit in memory: Parquet files, and Ray Data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._checks import check_count
from ._processes import Processes

__all__ = ["ParquetStream", "RayStream", "Stream"]

Columns = str | Sequence[str]


class Stream(ABC):
    """Batches (inputs, target) or (inputs, target, weight) of columns, read as they are needed.

    It can be read again and again, and stands wherever a DataLoader can: in `fit`, `posttrain`,
    `ood` and `metrics`.

    Args:
        inputs: a column of numbers or of equally long lists of them, or several such columns, which
            are put side by side: (B, n).
        target: a column of integers, for classes, or numbers or lists of numbers; None for none.
        weight: a column of weights.
        batch_size: rows of a batch; the last one may be smaller.
    """

    def __init__(
        self,
        inputs: Columns,
        target: str | None = None,
        weight: str | None = None,
        *,
        batch_size: int = 1024,
    ) -> None:
        check_count("batch_size", batch_size)
        if weight is not None and target is None:
            raise ValueError("a weight is for a target; name the column of targets too")
        self.inputs = [inputs] if isinstance(inputs, str) else list(inputs)
        self.target, self.weight, self.batch_size = target, weight, batch_size

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        others = (self.target, self.weight)
        return [*self.inputs, *(name for name in others if name is not None)]

    @abstractmethod
    def batches(self) -> Iterator[dict[str, Any]]:
        """The columns of each batch, as arrays."""

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        """Read the batches, from the first one on."""
        for columns in self.batches():
            parts = [_numbers(name, columns[name]) for name in self.inputs]
            parts = [part.reshape(len(part), -1) for part in parts]
            values = [np.concatenate(parts, 1).astype(np.float32, copy=False)]
            for name in (self.target, self.weight):
                if name is not None:
                    column = _numbers(name, columns[name])
                    whole = np.issubdtype(column.dtype, np.integer) and name == self.target
                    values.append(column.astype(np.int64 if whole else np.float32))
            yield tuple(torch.from_numpy(np.ascontiguousarray(value)) for value in values)


class ParquetStream(Stream):
    """Batches of a Parquet file, or of a folder of them; needs `lastlayer[cli]`.

    With `distributed`, every process reads row groups of its own, in turn: write files with at
    least as many row groups as there are processes.

    Args:
        path: of the file or folder.
        inputs: see `Stream`, as for the next ones.
        target: the column of targets.
        weight: the column of weights.
        batch_size: rows of a batch.
        distributed: whether the processes of `torch.distributed` have a part each.
    """

    def __init__(
        self,
        path: str | Path,
        inputs: Columns,
        target: str | None = None,
        weight: str | None = None,
        *,
        batch_size: int = 1024,
        distributed: bool = False,
    ) -> None:
        super().__init__(inputs, target, weight, batch_size=batch_size)
        try:
            import pyarrow.dataset
        except ImportError as error:
            raise ImportError(
                "ParquetStream needs pyarrow: pip install 'lastlayer[cli]'"
            ) from error
        processes = Processes.of(distributed, None)
        data = pyarrow.dataset.dataset(str(path), format="parquet")
        absent = [name for name in self.columns if name not in data.schema.names]
        if absent:
            raise ValueError(f"{path} has no column {absent[0]!r}; it has {data.schema.names}")
        groups = [group for file in data.get_fragments() for group in file.split_by_row_group()]
        if len(groups) < processes.size:
            raise ValueError(
                f"{path} has {len(groups)} row groups, which {processes.size} processes cannot "
                "share; write it with smaller ones (row_group_size)"
            )
        self.groups = groups[processes.rank :: processes.size]

    def __len__(self) -> int:
        """The number of batches."""
        return -(-self.num_rows // self.batch_size)

    @property
    def num_rows(self) -> int:
        """The number of rows that this process reads, known without reading them."""
        return sum(part.num_rows for group in self.groups for part in group.row_groups)

    def batches(self) -> Iterator[dict[str, Any]]:
        """The columns of each batch, as arrays; a row group is in memory at a time."""
        import pyarrow as pa

        waiting: list[Any] = []
        count = 0
        for group in self.groups:
            # without threads that read ahead: they would hold far more than a batch
            for batch in group.to_batches(
                columns=self.columns, batch_size=self.batch_size, use_threads=False
            ):
                waiting.append(batch)
                count += batch.num_rows
                while count >= self.batch_size:
                    table = pa.Table.from_batches(waiting)
                    yield _arrays(table.slice(0, self.batch_size))
                    waiting = table.slice(self.batch_size).to_batches()
                    count -= self.batch_size
        if count:
            yield _arrays(pa.Table.from_batches(waiting))


class RayStream(Stream):
    """Batches of a Ray data set, or of a part of it that a worker has; needs `lastlayer[ray]`.

    Args:
        dataset: of `ray.data`, or what `ray.train.get_dataset_shard` returns.
        inputs: see `Stream`, as for the next ones.
        target: the column of targets.
        weight: the column of weights.
        batch_size: rows of a batch.
    """

    def __init__(
        self,
        dataset: Any,
        inputs: Columns,
        target: str | None = None,
        weight: str | None = None,
        *,
        batch_size: int = 1024,
    ) -> None:
        super().__init__(inputs, target, weight, batch_size=batch_size)
        self.dataset = dataset

    def batches(self) -> Iterator[dict[str, Any]]:
        """The columns of each batch, as arrays."""
        options = {"batch_size": self.batch_size, "batch_format": "numpy"}
        yield from self.dataset.iter_batches(**options)


def _arrays(table: Any) -> dict[str, Any]:
    """Columns of an Arrow table as arrays, lists of one length as (rows, n)."""
    return {name: _array(table[name].combine_chunks()) for name in table.column_names}


def _array(column: Any) -> Any:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):  # of no rows
        column = column.chunk(0)
    if pa.types.is_nested(column.type) and hasattr(column.type, "value_type"):
        values = column.flatten().to_numpy(zero_copy_only=False)
        if column.null_count or len(values) % len(column):
            return column.to_numpy(zero_copy_only=False)  # refused as lists of several lengths
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        if (lengths == lengths[0]).all():
            return values.reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def _numbers(name: str, column: Any) -> Any:
    """A column of numbers, (rows,) or (rows, n), or an error that says what it holds."""
    if column.dtype == object and len(column) and isinstance(column[0], np.ndarray):
        if len({len(value) if value is not None else -1 for value in column}) > 1:
            raise ValueError(f"column {name!r} holds lists of several lengths; pad them")
        column = np.stack(list(column))
    if not (np.issubdtype(column.dtype, np.number) or column.dtype == bool):
        raise TypeError(
            f"column {name!r} holds {column.dtype} and not numbers; encode it, and fill missing "
            "values"
        )
    return column
