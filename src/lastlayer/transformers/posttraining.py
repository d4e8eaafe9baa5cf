"""A Bayesian last layer for a trained model of Hugging Face, on its data set as it is."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedModel,
    default_data_collator,
)

from .._streaming import frozen
from ..network import Network
from ..posttraining import posttrain as posttrain_network
from .models import LastLayerModel, labelled


class TakesDictionary(nn.Module):
    """A model called with one dictionary of inputs instead of keywords."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, inputs: dict[str, Any]) -> Any:
        """The model's output."""
        return self.model(**inputs)


class PicksFirst(TakesDictionary):
    """A model that picks one token of its last layer's output, with that layer after the choice.

    Args:
        model: with an identity in place of the layer.
        layer: the linear layer.
    """

    def __init__(self, model: nn.Module, layer: nn.Linear) -> None:
        super().__init__(model)
        self.layer = layer

    def forward(self, inputs: dict[str, Any]) -> Tensor:
        """The logits."""
        logits: Tensor = self.layer(self.model(**inputs).logits)
        return logits


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
    """`lastlayer.posttrain` of a trained classifier or regressor, of sequences or tokens.

    Args:
        model: such as `AutoModelForSequenceClassification` and `AutoModelForTokenClassification`
            make, trained; adapters are fine.
        dataset: tokenised, with a column `labels` or `label`; other columns are left out. Classes
            of −100 are ignored.
        head: as for `lastlayer.posttrain`.
        tokenizer: pads batches, if there is no collator.
        data_collator: makes a batch of examples.
        validation: as dataset, which the model was not trained on.
        batch_size: of the backbone.
        options: of `lastlayer.posttrain`, and of the head.

    Returns:
        A network that takes a dictionary of inputs.
    """
    inner = _inner(model)
    if isinstance(inner, LastLayerModel):
        raise TypeError(
            f"a {type(inner).__name__} has a Bayesian head already; post-training is for models "
            "with a linear last layer"
        )
    takes = {*inspect.signature(inner.forward).parameters, "labels", "label"}

    def collate(rows: list[Any]) -> tuple[Any, ...]:
        known = [{k: v for k, v in row.items() if k in takes} for row in rows]
        batch = dict((data_collator or _collator(tokenizer, known[0]))(known))
        name = "labels" if "labels" in batch else "label"
        if name not in batch:
            raise ValueError(f"examples must have 'labels' or 'label', got {sorted(rows[0])}")
        target = batch.pop(name)
        return (batch, target) if target.is_floating_point() else (batch, *labelled(target))

    def loader(rows: Any) -> Any:
        return rows and DataLoader(rows, batch_size=batch_size, collate_fn=collate)

    train = loader(dataset)
    network = TakesDictionary(model if options.pop("inplace", False) else copy.deepcopy(model))
    inner, score = _inner(network.model), getattr(inner, "score", None)
    if isinstance(score, nn.Module):  # as decoders have it
        network = _picking_first(network, next(iter(train))[0])
    try:
        return posttrain_network(
            network, train, head, validation=loader(validation), inplace=True, **options
        )
    except BaseException:
        if isinstance(network, PicksFirst):
            inner.score = score
        raise


def _inner(model: Any) -> Any:
    """The model within adapters of peft."""
    return getattr(model, "get_base_model", lambda: model)()


def _collator(tokenizer: Any, row: dict[str, Any]) -> Callable[[list[Any]], dict[str, Any]]:
    """What pads the inputs and, of tokens, the labels."""
    if tokenizer is None:
        return default_data_collator
    labels = row.get("labels", 0)
    tokens = hasattr(labels, "__len__") and len(labels) == len(row.get("input_ids", ()))
    return (DataCollatorForTokenClassification if tokens else DataCollatorWithPadding)(tokenizer)


def _picking_first(network: TakesDictionary, inputs: dict[str, Any]) -> TakesDictionary:
    """The same network with its layer `score` at the end, if that is what it comes to."""
    few = {name: value[:2].to(network.model.device) for name, value in inputs.items()}
    with frozen(network):
        expected = network(few).logits
        inner = _inner(network.model)
        score, inner.score = inner.score, nn.Identity()
        layers = [part for part in score.modules() if isinstance(part, nn.Linear)]
        for layer in reversed(layers):  # of peft's copies the trained one is the last
            picking = PicksFirst(network.model, layer)
            logits = picking(few)
            if logits.shape == expected.shape and torch.allclose(logits, expected, 1e-2, 1e-2):
                return picking
    inner.score = score
    return network
