"""A Bayesian last layer for a trained model of Hugging Face, on its data set as it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding, PreTrainedModel, default_data_collator

from ..network import Network
from ..posttraining import posttrain as posttrain_network


class TakesDictionary(nn.Module):
    """A model called with one dictionary of inputs instead of keywords."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: dict[str, Any]) -> Any:
        """The model's output."""
        return self.model(**inputs)


def posttrain(
    model: PreTrainedModel,
    dataset: Any,
    head: Any = "discriminative",
    *,
    tokenizer: Any = None,
    data_collator: Callable[[list[Any]], dict[str, Any]] | None = None,
    validation: Any = None,
    batch_size: int = 32,
    **options: Any,
) -> Network:
    """`lastlayer.posttrain` of a trained classifier or regressor of sequences.

    Args:
        model: such as `AutoModelForSequenceClassification` makes, trained; adapters are fine.
        dataset: tokenised, with a column `labels` or `label`; other columns are left out.
        head: as for `lastlayer.posttrain`.
        tokenizer: pads batches, if there is no collator.
        data_collator: makes a batch of examples.
        validation: as dataset, which the model was not trained on.
        batch_size: of the backbone.
        options: of `lastlayer.posttrain`, and of the head.

    Returns:
        A network that takes a dictionary of inputs.
    """
    if data_collator is None:
        data_collator = DataCollatorWithPadding(tokenizer) if tokenizer else default_data_collator
    inner: Any = getattr(model, "get_base_model", lambda: model)()  # within adapters of peft
    takes = {*inspect.signature(inner.forward).parameters, "labels", "label"}

    def collate(rows: list[Any]) -> tuple[dict[str, Any], Any]:
        known = [{k: v for k, v in row.items() if k in takes} for row in rows]
        batch = dict(data_collator(known))
        target = batch.pop("labels") if "labels" in batch else batch.pop("label")
        return batch, target

    def loader(rows: Any) -> Any:
        return rows and DataLoader(rows, batch_size=batch_size, collate_fn=collate)

    return posttrain_network(
        TakesDictionary(model), loader(dataset), head, validation=loader(validation), **options
    )
