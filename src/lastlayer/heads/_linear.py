"""Linear layers: draws of a head as a layer, and heads initialised from a trained layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._processes import summed
from ..priors import Prior

ROWS = 65536  # of features, at a time
MEDIAN_SQUARE = 0.4549  # of a standard normal variable
Cached = tuple[Tensor, Tensor, Tensor | None]  # features, target, weight; one row per example


def as_linear(weight: Tensor, head: Any) -> nn.Linear:
    """A linear layer with given weights, (K, width), whose last column is the bias if any."""
    layer = nn.utils.skip_init(
        nn.Linear,
        head.num_features,
        head.num_outputs,
        bias=head.bias,
        device=weight.device,
        dtype=head.mean.dtype,
    )
    with torch.no_grad():
        layer.weight.copy_(weight[:, : head.num_features])
        if head.bias:
            layer.bias.copy_(weight[:, -1])
    return layer.requires_grad_(False)


def weights_of(layer: nn.Linear, head: Any) -> Tensor:
    """The trained weights, and the bias if the head has one, in the shape of the head's mean."""
    weight = layer.weight.detach()
    if layer.in_features != head.num_features:
        raise ValueError(
            f"the head has num_features={head.num_features}, but the layer it replaces has "
            f"{layer.in_features} inputs"
        )
    if head.bias:
        bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()
        weight = torch.cat([weight, bias.unsqueeze(-1)], -1)
    if len(weight) == 1 and head.num_outputs == 2:  # sigmoid(z) = softmax(−z/2, z/2)
        weight = torch.cat([-weight / 2, weight / 2])
    if len(weight) != head.num_outputs:
        raise ValueError(
            f"the head has {head.num_outputs} outputs, but the layer it replaces {len(weight)}"
        )
    return weight


def layer_loss(
    weight: Tensor, bias: Tensor | None, features: Tensor, target: Tensor, weights: Tensor
) -> float | None:
    """Mean cross-entropy of labels under a linear layer, weighted; None if it has other outputs."""
    logits = F.linear(features, weight.to(features), None if bias is None else bias.to(features))
    if logits.shape[-1] == 1:  # sigmoid(z) = softmax(0, z)
        logits = F.pad(logits, (1, 0))
    if logits.shape[-1] <= int(target.max()):
        return None
    losses = F.cross_entropy(logits, target, reduction="none")
    return float(weights @ losses / weights.sum())


@torch.no_grad()
def prior_in_units(
    layer: nn.Linear, cached: Cached, *, conjugate: bool = False, heavy_tails: bool = False
) -> Prior:
    """A prior in the units of the targets: as wide as the trained weights and their residuals.

    If conjugate, the variance of a weight is that of the prior times the noise. With heavy tails
    the scale of the residuals is that of their median, which outliers do not move.
    """
    if heavy_tails:
        squares = torch.cat([*_squared_errors(layer, cached)])
        noise_scale = float(squares.median() / MEDIAN_SQUARE) if len(squares) else 0.0
    else:  # a sum alone: errors of large data are not to be in memory together
        sums = torch.zeros(2, dtype=torch.float64)
        for squares in _squared_errors(layer, cached):
            sums += torch.stack([squares.sum(), squares.new_tensor(len(squares))])
        total, count = summed(sums).tolist()
        noise_scale = total / max(count, 1)
    noise_scale = max(noise_scale, 1e-12)
    variance = float(layer.weight.double().square().mean()) / (noise_scale if conjugate else 1)
    return Prior(variance=max(variance, 1e-12), noise_scale=noise_scale)


def _squared_errors(layer: nn.Linear, cached: Cached) -> Iterator[Tensor]:
    """Squared errors of a linear layer where weights are not zero, in chunks of the data."""
    features, target, weights = cached
    for start in range(0, len(features), ROWS):
        rows = slice(start, start + ROWS)
        output = layer(features[rows].to(layer.weight.device)).double().cpu()
        error = output - target[rows].reshape(output.shape).double()
        known = torch.ones_like(error, dtype=torch.bool)
        if weights is not None:
            known = (weights[rows] != 0).reshape(len(error), -1).expand_as(error)
        yield error[known].square()
