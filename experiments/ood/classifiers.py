"""Models of the labels on fixed features: a linear layer, and what `posttrain` makes of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.calibration import Calibrated, TemperatureScaling

from .problems import Problem

LINEAR = "softmax"
POSTTRAINED, GENERATIVE = "`posttrain`", '`posttrain`, "generative"'


def linear_layer(inputs: Tensor, label: Tensor) -> nn.Linear:
    """A linear layer on features, fitted to convergence."""
    torch.manual_seed(0)
    layer = nn.Linear(inputs.shape[-1], int(label.max()) + 1)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        penalty = 1e-4 * layer.weight.square().sum()
        loss = nn.functional.cross_entropy(layer(inputs), label) + penalty
        loss.backward()
        return loss

    optimizer.step(closure)
    return layer.requires_grad_(False)


def classifiers(problem: Problem) -> dict[str, nn.Module]:
    """Models of the labels: a linear layer, its temperature by a fifth, and what it becomes."""
    inputs, label = problem.train
    with torch.no_grad():
        features = problem.backbone(inputs)
    layer = linear_layer(features, label)
    network = nn.Sequential(problem.backbone, layer)
    plain = ll.Plain(network, "classification")
    seen = len(label) * 4 // 5
    shorter = linear_layer(features[:seen], label[:seen])
    fifth = (shorter(features[seen:]), label[seen:])
    scaling = TemperatureScaling().fit(ll.SoftmaxPredictive, fifth, progress=False)
    return {
        LINEAR: plain,
        f"{LINEAR}, temperature": Calibrated(plain, scaling),
        POSTTRAINED: ll.posttrain(network, problem.train, "discriminative", progress=False),
        GENERATIVE: ll.posttrain(network, problem.train, "generative", progress=False),
    }


def predicted(model: nn.Module, data: Any) -> dict[str, float]:
    """Accuracy, NLL and calibration error on in-distribution examples."""
    found = ll.metrics.evaluate(model, data, progress=False)
    return {name: float(found[name]) for name in ("accuracy", "nll", "ece")}
