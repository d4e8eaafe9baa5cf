"""Features of a frozen network, and a cache of them."""

from __future__ import annotations

import atexit
import json
import os
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor, nn

from .._checks import check_count
from .._data import Batch, Data
from .._streaming import predictions

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


class _ReachedError(Exception):
    """Carries the input of a layer out of the network."""

    def __init__(self, features: Tensor) -> None:
        super().__init__("the layer was reached")
        self.features = features


class Exit(nn.Module):
    """Stands where a layer was, and ends the forward pass there; see `FeatureExtractor`."""

    def forward(self, features: Tensor) -> Tensor:
        """Leave the network with these features."""
        raise _ReachedError(features)


class FeatureExtractor(nn.Module):
    """A backbone whose features are the input of an `Exit` inside it, whatever follows that.

    Nothing after the exit runs. It holds no state, so copies, checkpoints and threads are safe;
    but leaving by an exception breaks the graph of `torch.compile`.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Any) -> Tensor:
        """The features, (*batch, N)."""
        try:
            self.network(inputs)
        except _ReachedError as reached:
            return reached.features
        raise RuntimeError("the network did not reach its exit: the layer was not used this time")


def cache_features(
    backbone: nn.Module,
    data: Data,
    *,
    batch_size: int = 1024,
    path: Path | str | None = None,
    max_memory_bytes: int = 2**30,
    targets: bool = True,
    progress: bool | None = None,
) -> Features:
    """Run a backbone once over all the data, in evaluation mode, and keep its features.

    Features with more leading dimensions than one, as of sequences and pixels, become rows.
    They stay in main memory while they fit, and move to a memory-mapped file when they do not;
    without a path that is a temporary file, gone when the tensors are.

    Args:
        backbone: from inputs to features, (*batch, N); unchanged, down to its training flags.
        data: (inputs, target) or (inputs, target, weight) as tensors, Dataset or DataLoader.
        batch_size: of tensors and Datasets; a DataLoader has its own.
        path: of a file to keep, in safetensors format; it appears when it is complete.
        max_memory_bytes: of features in main memory.
        targets: whether the data must hold targets; if not, inputs alone will do, and targets that
            are there are left out.
        progress: whether to show a progress bar; None for where there is a terminal.

    Returns:
        Features (T, N), targets and weights, in main memory or mapped into it.
    """
    check_count("batch_size", batch_size)
    stream = predictions(backbone, data, batch_size=batch_size, progress=progress, what="features")
    with Store(path, max_memory_bytes) as store:
        for features, batch in stream:
            if batch.size:
                store.append(_rows(features, batch if targets else Batch(batch.inputs), targets))
        return store.finish()


def _rows(features: Any, batch: Batch, targets: bool) -> Features:
    """One row per example in main memory, whatever the leading dimensions."""
    if not isinstance(features, Tensor) or features.ndim < 2 or not features.is_floating_point():
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise TypeError(f"the backbone must return features (*batch, N), got {got}")
    leading = features.shape[:-1]
    target = batch.target
    if target is None:
        if targets:
            raise ValueError("data must hold targets: pass (inputs, target) or batches of them")
        target = features.new_empty(*leading, 0)
    parts = [features]
    for name, value in (("target", target), ("weight", batch.weight)):
        if value is None:
            continue
        if value.shape[: len(leading)] != leading:
            raise ValueError(
                f"{name} must begin with the dimensions of the features, {tuple(leading)}, "
                f"got shape {tuple(value.shape)}"
            )
        parts.append(value)
    rows = [part.detach().flatten(0, len(leading) - 1).cpu() for part in parts]
    return Features(rows[0], rows[1], rows[2] if len(rows) == 3 else None)


class Store:
    """Collects rows: a list while they fit, then a file that is no cache before it is complete."""

    def __init__(self, path: Path | str | None, max_memory_bytes: int) -> None:
        self.path = None if path is None else Path(path)
        if self.path is not None and self.path.exists():
            raise FileExistsError(
                f"{self.path} exists; delete it, or read it with safetensors.torch.load_file"
            )
        self.max_memory_bytes = max_memory_bytes
        self.parts: list[Features] = []  # features leave for the file, if there is one
        self.num_rows = self.num_bytes = 0
        self.like: Tensor | None = None
        self.file: BinaryIO | None = None
        self.partial: Path | None = None

    def __enter__(self) -> Store:
        if self.path is not None:
            self.partial = self.path.with_name(self.path.name + ".partial")
            self._open(open(self.partial, "wb"))
        return self

    def _open(self, file: BinaryIO) -> None:
        self.file = file
        file.write(b"\0" * HEADER_BYTES)
        for index, part in enumerate(self.parts):
            _write(file, part.features)
            self.parts[index] = part._replace(features=part.features[:0])

    def append(self, rows: Features) -> None:
        """Add the rows of a batch."""
        if self.like is None:
            self.like = rows.features[:0]
        if rows.features.shape[-1] != self.like.shape[-1]:
            raise ValueError(
                "features must be as wide in every batch, got "
                f"{rows.features.shape[-1]} after {self.like.shape[-1]}"
            )
        self.num_rows += len(rows.features)
        self.num_bytes += rows.features.nbytes
        if self.file is None and self.num_bytes > self.max_memory_bytes:
            handle, name = tempfile.mkstemp(prefix="lastlayer-", suffix=".partial")
            self.partial = Path(name)
            self._open(os.fdopen(handle, "wb"))
        if self.file is not None:
            _write(self.file, rows.features)
            rows = rows._replace(features=self.like)
        self.parts.append(rows)

    def finish(self) -> Features:
        """All the rows."""
        if not self.num_rows or self.like is None:
            raise ValueError("data holds no examples")
        target = torch.cat([part.target for part in self.parts])
        weights = [part.weight for part in self.parts if part.weight is not None]
        if weights and len(weights) < len(self.parts):
            raise ValueError("either all batches have weights or none; some had, some had not")
        weight = torch.cat(weights) if weights else None
        if self.file is None:
            return Features(torch.cat([part.features for part in self.parts]), target, weight)
        assert self.partial is not None
        shape = (self.num_rows, self.like.shape[-1])
        _complete(self.file, shape, self.like.dtype, target, weight)
        self.file.close()
        if self.path is not None:
            os.replace(self.partial, self.path)
        mapped = _mapped(self.path or self.partial, shape, self.like.dtype)
        if self.path is None:
            _forget(self.partial)
        return Features(mapped, target, weight)

    def __exit__(self, *error: object) -> None:
        if self.file is not None and not self.file.closed:  # interrupted
            self.file.close()
            assert self.partial is not None
            self.partial.unlink(missing_ok=True)


def _write(file: BinaryIO, tensor: Tensor) -> None:
    file.write(tensor.contiguous().view(torch.uint8).numpy().data)


def _complete(
    file: BinaryIO,
    shape: tuple[int, int],
    dtype: torch.dtype,
    target: Tensor,
    weight: Tensor | None,
) -> None:
    """Append what belongs to the features, and write the header that makes it a cache."""
    header: dict[str, Any] = {}
    end = shape[0] * shape[1] * dtype.itemsize
    header["features"] = {"dtype": SAFETENSORS[dtype], "shape": shape, "data_offsets": [0, end]}
    for name, tensor in (("target", target), ("weight", weight)):
        if tensor is None:
            continue
        _write(file, tensor.unsqueeze(-1))  # a view of bytes needs a last dimension
        start, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": SAFETENSORS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    file.seek(0)
    file.write((HEADER_BYTES - 8).to_bytes(8, "little") + text.ljust(HEADER_BYTES - 8))
    file.flush()
    os.fsync(file.fileno())


def _mapped(path: Path, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """The features of a cache file, read where they are used."""
    size = HEADER_BYTES + shape[0] * shape[1] * dtype.itemsize
    file = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    return file[HEADER_BYTES:].view(dtype).reshape(shape)


def _forget(path: Path) -> None:
    """Delete a temporary file, whose mapping lives on; at exit where that is not possible."""
    if os.name == "nt":
        atexit.register(path.unlink, missing_ok=True)
    else:
        path.unlink()
