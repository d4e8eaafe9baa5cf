"""Models as modules from inputs to features and predictive together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .._data import Data, batches
from ..network import Network
from ..posttraining import find_last_layer
from ..predictive import Plain, Predictive


class Reader(nn.Module):
    """A model that returns features and predictive.

    Attributes:
        num_classes: Gaussians that describe the features: one, or one per class.
        layer: weights (K, N) and biases (K,) of the logits, if they are linear in the features.
    """

    def __init__(self, num_classes: int, layer: tuple[Tensor, Tensor] | None) -> None:
        super().__init__()
        self.num_classes, self.layer = num_classes, layer


class NetworkReader(Reader):
    """A backbone with a head."""

    def __init__(self, network: Network) -> None:
        super().__init__(network.head.num_densities, network.head.logit_layer)
        self.network = network

    def forward(self, inputs: Any) -> tuple[Tensor, Predictive]:
        """Features and predictive; variational features are drawn once."""
        features = self.network.backbone(inputs)
        return features, self.network.head(features)


class PlainReader(Reader):
    """A network of plain outputs, whose features are what its last linear layer takes."""

    def __init__(self, model: Plain, inputs: Any) -> None:
        site = find_last_layer(model.model, inputs)
        weight, trained = site.module.weight.detach(), site.module.bias
        bias = weight.new_zeros(len(weight)) if trained is None else trained.detach()
        classes = len(weight) if model.task == "classification" else 1
        if model.task == "classification" and classes == 1:
            raise ValueError(
                "a softmax of one logit is certain of every input; return a logit for each class, "
                "or pass Plain(model, 'regression')"
            )
        super().__init__(classes, (weight, bias) if classes > 1 else None)
        self.model, self.last = model, site.module

    def forward(self, inputs: Any) -> tuple[Tensor, Predictive]:
        """Features and predictive."""
        seen: list[Tensor] = []
        handle = self.last.register_forward_pre_hook(lambda _, taken: seen.append(taken[0]))
        try:
            predictive = self.model(inputs)
        finally:
            handle.remove()
        return seen[-1], predictive


def reader(model: nn.Module, data: Data, batch_size: int) -> Reader:
    """The reader of a `Network`, of `Plain`, or of a classifier that returns logits.

    Args:
        model: the model.
        data: whose first examples find the last layer of a plain network.
        batch_size: of tensors and Datasets.
    """
    if isinstance(model, Network):
        return NetworkReader(model)
    if isinstance(data, Iterator):
        raise TypeError("data that can be read once is for a Network alone; pass a DataLoader")
    plain = model if isinstance(model, Plain) else Plain(model, "classification")
    device = next((parameter.device for parameter in plain.parameters()), None)
    first = next(batches(data, batch_size, device=device), None)
    if first is None or not first.size:
        raise ValueError("there is no example to fit to: data is empty")
    few = pytree.tree_map_only(torch.Tensor, lambda values: values[:2], first.inputs)
    return PlainReader(plain, few)
