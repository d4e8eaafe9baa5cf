"""Features of a frozen network, and a cache of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .._checks import check_count
from .._data import Batch, Data
from .._streaming import predictions
from .store import Features, Store


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
    They stay in main memory while they fit, and move to memory-mapped files when they do not, with
    their targets and weights; without a path these are temporary, gone when the tensors are.

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
