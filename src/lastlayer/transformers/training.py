"""What heads need of the Trainer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from .._checks import check_range
from ..heads import Head
from ..training.preparation import warn_of_weight_decay
from .config import set_num_data
from .models import IGNORED, LastLayerForTokenClassification

ROWS = 4096  # whose labels are read at a time


class HeadCallback(TrainerCallback):
    """Sets `num_data` of heads from the data set, and lets generative ones count classes.

    For `Trainer(..., callbacks=[HeadCallback()])`. Labels of a data set with a length are checked;
    a stream is only read where classes must be counted. Weight decay of a head is warned of.

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
        if args.label_smoothing_factor:
            raise ValueError(
                "label_smoothing_factor replaces the loss of the model, of which the prior is a "
                "part; leave it at 0"
            )
        warn_of_weight_decay(model, kwargs["optimizer"].param_groups)
        data = kwargs["train_dataloader"].dataset
        tokens = any(isinstance(part, LastLayerForTokenClassification) for part in model.modules())
        set_num_data(model, self.num_data or _count(data, tokens))
        if state.global_step or not _has_labels(data):
            return
        for head in model.modules():
            if isinstance(head, Head) and head.mean.requires_grad:
                if hasattr(data, "__len__"):
                    for labels, _ in _labels(data):
                        if not labels.is_floating_point():
                            check_range(labels, head.num_outputs)
                head.prepare(_labels(data), new=head.fresh, total=lambda counts: counts)


def _count(data: Any, tokens: bool) -> float:
    """The number of labels of tokens, or of examples."""
    if not hasattr(data, "__len__"):
        raise ValueError(
            "the number of training examples is not known; pass it: HeadCallback(num_data=…)"
        )
    return sum(len(labels) for labels, _ in _labels(data)) if tokens else len(data)


def _rows(data: Any) -> Iterator[Any]:
    """The examples of a data set, in order."""
    return map(data.__getitem__, range(len(data))) if hasattr(data, "__len__") else iter(data)


def _has_labels(data: Any) -> bool:
    return bool({"labels", "label"} & set(next(_rows(data), ())))


def _labels(data: Any) -> Iterator[tuple[Tensor, None]]:
    """The labels without those to ignore, many examples at a time; numbers as (T, K)."""
    rows = _rows(data)
    while part := list(itertools.islice(rows, ROWS)):
        values = [
            torch.as_tensor(row["labels"] if "labels" in row else row["label"]) for row in part
        ]
        if values[0].is_floating_point():
            yield torch.stack([value.reshape(-1) for value in values]), None
        else:
            labels = torch.cat([value.flatten() for value in values])
            yield labels[labels != IGNORED], None
