"""Metrics of out-of-distribution detection by a score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torchmetrics import CatMetric

from .._data import Data
from ..ood import detection as ood
from ..ood import scores as score_all


def evaluate_ood(
    model: Callable[[Any], Any],
    in_data: Data | Tensor,
    out_data: Data | Tensor,
    score: str | Callable[[Any], Tensor] = "predictive_entropy",
    *,
    batch_size: int = 1024,
    progress: bool | None = None,
) -> dict[str, float]:
    """Detection of out-of-distribution data by a score of what a model returns.

    Under `torch.distributed` every process passes its own part of the data and gets the metrics
    of all of it. The scores of all examples are kept: exact ranks need them.

    Args:
        model: as of `lastlayer.ood.scores`.
        in_data: inputs like the training data, with or without targets.
        out_data: other inputs.
        score: a name in `lastlayer.ood.SCORES`, or any function of what the model returns.
        batch_size: of tensors and Datasets.
        progress: whether to show a progress bar; None for where there is a terminal.

    Returns:
        `auroc`, `aupr` and `fpr95`; see `ood`.
    """
    gathered = []
    for data in (in_data, out_data):
        scores = score_all(model, data, score, batch_size=batch_size, progress=progress)
        everywhere = CatMetric(nan_strategy="disable").to(scores.device).set_dtype(scores.dtype)
        everywhere.update(scores)
        gathered.append(everywhere.compute())
    return ood(*gathered)
