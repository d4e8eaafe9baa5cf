"""The last layer of cross-fitted models, solved on their features."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .._data import as_batch
from .._processes import Processes
from ..calibration import default_scaling
from ..network import Network
from ..posttraining import Features, cache_features
from ..posttraining.choosing import by_folds
from .folds import CrossFit, Tensors, calibrated, held_out_predictions


@torch.no_grad()
def solve(found: CrossFit, data: Tensors) -> CrossFit:
    """Solve the last layer of each model anew; see `CrossFit.solve`."""
    models = [_network(model) for model, _ in found.folds]
    folds = [fold for _, fold in found.folds]
    pairs = [
        (_features(model, fold.train), _features(model, fold.held_out))
        for model, fold in zip(models, folds, strict=True)
    ]
    heads, alone = [model.head for model in models], Processes.of(False, None)
    variance = by_folds(heads, pairs, alone).variance
    new = [_solved(model, train, variance) for model, (train, _) in zip(models, pairs, strict=True)]
    predictive, held_out = held_out_predictions(new, folds)
    scaling = default_scaling(predictive)
    calibrated(scaling, predictive, held_out)
    model = _network(found.model)
    return replace(
        found,
        model=_solved(model, _features(model, data), variance),
        scaling=scaling,
        folds=list(zip(new, folds, strict=True)),
    )


def _network(model: nn.Module) -> Network:
    """The model, if it is a backbone with a head whose prior can be chosen."""
    if not isinstance(model, Network):
        raise TypeError(
            f"only the last layer of a lastlayer.Network can be solved, got {type(model).__name__}"
        )
    if model.head.learns_prior:
        raise ValueError(
            "the variance of the prior is learned by the ELBO, so there is none to choose; give "
            "the head a prior whose variance is a number"
        )
    return model


def _features(model: Network, data: Tensors) -> Features:
    inputs, target, weight = as_batch(data)
    rows: Any = (inputs, target) if weight is None else (inputs, target, weight)
    return cache_features(model.backbone, rows, progress=False)


def _solved(model: Network, data: Features, variance: float) -> Network:
    """A copy of a model with its head solved on features."""
    model = copy.deepcopy(model)
    model.head.prior = replace(model.head.prior, variance=variance)
    model.head.fit_features(*data)
    return model
