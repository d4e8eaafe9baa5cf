"""Predictions for the parts of a table, here or by the workers of a Ray cluster."""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import torch

from .arguments import Executor
from .saved import SavedModel

Part = TypeVar("Part")
AHEAD = 2  # parts that wait for each worker, so that memory is bounded


def predicted(
    saved: SavedModel,
    parts: Iterator[Part],
    rows: Callable[[Part], pa.Table],
    level: float,
    executor: Executor,
) -> Iterator[tuple[Part, pa.Table]]:
    """Yield each part with its predictions, in their order.

    Args:
        saved: the model, which counts what was not in training.
        parts: of a table.
        rows: the table of a part.
        level: of intervals.
        executor: this process, or a Ray cluster: the one that RAY_ADDRESS names, else one of this
            machine. Its workers must see the folder of the model.
    """
    if executor is Executor.local:
        for part in parts:
            yield part, saved.predictions(rows(part), level)
        return
    with _cluster() as ray:
        work = ray.remote(num_cpus=1)(_predict)
        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting: deque[tuple[Part, Any]] = deque()
        for part in parts:
            if len(waiting) == most:
                yield _first(ray, waiting, saved)
            waiting.append((part, work.remote(saved.folder.resolve(), rows(part), level)))
        while waiting:
            yield _first(ray, waiting, saved)


def _predict(folder: Path, rows: pa.Table, level: float) -> tuple[pa.Table, dict[str, Any]]:
    """Predictions of a worker, and what it counted in these rows."""
    saved = _model(folder)
    saved.new_levels, saved.num_newly_missing, saved.num_infinite = {}, 0, 0
    predictions = saved.predictions(rows, level)
    counts = ("new_levels", "num_newly_missing", "num_infinite")
    return predictions, {name: getattr(saved, name) for name in counts}


@functools.lru_cache(maxsize=1)
def _model(folder: Path) -> SavedModel:
    """The model, which a worker reads once."""
    torch.set_num_threads(1)
    return SavedModel(folder)


def _first(ray: Any, waiting: deque[tuple[Part, Any]], saved: SavedModel) -> tuple[Part, pa.Table]:
    """The predictions that were asked for first."""
    part, reference = waiting.popleft()
    try:
        predictions, counts = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # what went wrong, without the worker's traceback
    saved.num_newly_missing += counts["num_newly_missing"]
    saved.num_infinite += counts["num_infinite"]
    for name, levels in counts["new_levels"].items():
        saved.new_levels.setdefault(name, set()).update(levels)
    return part, predictions


@contextmanager
def _cluster() -> Iterator[Any]:
    """Ray, on the cluster that there is, or one that ends with the command."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            "--executor ray needs Ray; install it with: pip install 'lastlayer[ray]'"
        ) from error
    started = not ray.is_initialized()
    if started:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()
