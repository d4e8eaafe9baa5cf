"""What heads need of the Trainer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from ..heads import Head
from .config import set_num_data
from .models import IGNORED, LastLayerForTokenClassification


class HeadCallback(TrainerCallback):
    """Sets `num_data` of heads from the data set, and lets generative ones count classes.

    For `Trainer(..., callbacks=[HeadCallback()])`.

    Args:
        num_data: the number of training examples, where the data set does not know it.
    """

    def __init__(self, num_data: float | None = None) -> None:
        self.num_data = num_data

    @torch.no_grad()
    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Before the first step."""
        loader = kwargs["train_dataloader"]
        tokens = any(isinstance(part, LastLayerForTokenClassification) for part in model.modules())
        set_num_data(model, self.num_data or _count(loader.dataset, tokens))
        if state.global_step == 0 and _has_labels(loader.dataset):
            for head in model.modules():
                if isinstance(head, Head) and head.mean.requires_grad:
                    labels = iter([(_labels(loader.dataset), None)])
                    head.prepare(labels, new=head.fresh, total=lambda counts: counts)


def _count(data: Any, tokens: bool) -> float:
    """The number of labels of tokens, or of examples."""
    try:
        size = len(data)
    except TypeError:
        raise ValueError(
            "the number of training examples is not known; pass it: HeadCallback(num_data=…)"
        ) from None
    return len(_labels(data)) if tokens else size


def _has_labels(data: Any) -> bool:
    return bool({"labels", "label"} & set(data[0]))


def _labels(data: Any) -> Tensor:
    """The labels of all examples, without those to ignore; numbers as (T, K)."""
    rows = [torch.as_tensor(row["labels"] if "labels" in row else row["label"]) for row in data]
    if rows[0].is_floating_point():
        return torch.stack([row.reshape(-1) for row in rows])
    labels = torch.cat([row.flatten() for row in rows])
    return labels[labels != IGNORED]
