"""Draws of targets that share a last layer."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.utils import check_random_state
from torch import Tensor

from ..model import TableModel


def generator(random_state: Any) -> torch.Generator:
    """A generator of torch with a seed from a random state of scikit-learn."""
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    return torch.Generator().manual_seed(seed)


def draws(model: TableModel, codes: Tensor, weights: Tensor, source: torch.Generator) -> Tensor:
    """A draw of the targets for each draw of the last layer, (num_rows, num_targets, S)."""
    features = model.features(codes)
    plain = model.network.head(features)
    biased = torch.nn.functional.pad(features, (0, 1), value=1.0)
    functions = torch.einsum("skn,tn->tks", weights, biased)
    noise = torch.randn(functions.shape, generator=source, dtype=functions.dtype).to(functions)
    error = functions - plain.mean.unsqueeze(-1) + plain.noise_variance.sqrt().unsqueeze(-1) * noise
    scaled = model.widened(model.scaling(plain), codes)
    if not hasattr(scaled, "components"):
        raise TypeError(
            "draws that share a last layer need a mixture, as TailScaling makes, and "
            f"{type(scaled).__name__} is none; draw each row by itself, from predict_dist(X)"
        )
    # each row draws its own component of the mixture, which is a factor on its variance
    variances = scaled.components.variance  # (num_rows, C, num_targets)
    chosen = torch.randint(variances.shape[1], (len(codes), len(weights)), generator=source)
    chosen, rows = chosen.to(codes.device), torch.arange(len(codes), device=codes.device)
    ratio = variances[rows.unsqueeze(-1), chosen].mT / plain.variance.unsqueeze(-1)
    draws = plain.mean.unsqueeze(-1) + ratio.sqrt() * error
    return model.units.location.unsqueeze(-1) + model.units.scale.unsqueeze(-1) * draws
