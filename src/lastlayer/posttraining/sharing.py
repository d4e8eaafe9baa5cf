"""Features of which several processes have some rows each."""

from __future__ import annotations

import torch
from torch import Tensor

from .._processes import Processes
from .store import Features, Store

GATHERED = 2**24  # numbers that processes give each other at a time


def chosen_rows(data: Features, order: Tensor, processes: Processes) -> Features:
    """Some rows of all processes, in a given order of their positions, on every process."""
    places = torch.full((sum(processes.each(len(data.features))),), -1)
    places[order] = torch.arange(len(order))
    mine = places[processes.positions(len(data.features))]
    chosen = (mine >= 0).nonzero().squeeze(-1)
    parts = [None if part is None else part[chosen] for part in data]
    every = processes.objects((mine[chosen], parts))
    sorting = torch.cat([places for places, _ in every]).argsort()
    columns = zip(*(parts for _, parts in every), strict=True)
    features, target, weight = (
        None if column[0] is None else torch.cat(column)[sorting] for column in columns
    )
    assert features is not None
    assert target is not None
    return Features(features, target, weight)


def gathered(data: Features, processes: Processes, max_memory_bytes: int = 2**30) -> Features:
    """The rows of all processes on each of them, a file's worth if they are large."""
    if processes.size == 1:
        return data
    counts = processes.each(len(data.features))
    step = max(1, GATHERED // (data.features.shape[-1] * processes.size))
    with Store(None, max_memory_bytes) as store:
        for start in range(0, max(counts), step):
            rows = slice(start, start + step)
            weight = None if data.weight is None else data.weight[rows]
            part = Features(data.features[rows], data.target[rows], weight)
            size = sum(processes.each(len(part.features)))
            store.append(chosen_rows(part, torch.arange(size), processes))
        return store.finish()
