"""Metrics of out-of-distribution detection by a score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchmetrics import CatMetric
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_average_precision,
    binary_specificity_at_sensitivity,
)

from .._data import Data
from ..ood import scores as score_all


def ood(in_scores: Tensor, out_scores: Tensor) -> dict[str, float]:
    """AUROC, AUPR and FPR of out-of-distribution detection by scores that are higher further out.

    Args:
        in_scores: of examples like the training data, any shape.
        out_scores: of others, any shape.

    Returns:
        `auroc`, how often a random example from outside scores above one from inside, ties
        counting half; `aupr`, the average precision with out as the positive class, which for
        chance is the fraction of examples that are out; `fpr95`, the fraction of examples from
        inside that are flagged at the highest threshold that flags at least 95 % of those from
        outside. For the other convention, in as the positive class, pass `(-out, -in)`.
    """
    # double precision, which not every device has, tells all ranks apart
    inside, outside = (
        scores.detach().cpu().double().flatten() for scores in (in_scores, out_scores)
    )
    for name, scores in (("in_scores", inside), ("out_scores", outside)):
        if not len(scores) or bool(scores.isnan().any()):
            what = "NaN" if len(scores) else "none"
            raise ValueError(f"{name} must hold at least one score and no NaN, got {what}")
    # Ranks, because torchmetrics takes scores outside of [0, 1] for logits, and their sigmoid
    # would tie all that are large.
    values, rank = torch.cat([inside, outside]).unique(return_inverse=True)
    scores = rank.double() / len(values)
    label = torch.cat([torch.zeros_like(inside), torch.ones_like(outside)]).long()
    specificity, _ = binary_specificity_at_sensitivity(scores, label, min_sensitivity=0.95)
    return {
        "auroc": binary_auroc(scores, label).item(),
        "aupr": binary_average_precision(scores, label).item(),
        "fpr95": 1 - specificity.item(),
    }


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
