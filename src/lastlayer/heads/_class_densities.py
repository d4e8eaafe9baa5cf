"""A draw from the posterior of a generative head."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from .._checks import check_features
from ..functional import class_log_densities
from ..functional.densities import with_unobserved_classes
from ..noise import Noise


class ClassDensities(nn.Module):
    """Gaussian class densities with known means: a draw from a generative head's posterior."""

    mean: Tensor
    log_class: Tensor
    known: Tensor

    def __init__(self, noise: Noise, mean: Tensor, log_class: Tensor, known: Tensor) -> None:
        super().__init__()
        self.noise = copy.deepcopy(noise).requires_grad_(False)
        self.register_buffer("mean", mean)  # in the noise's basis
        self.register_buffer("log_class", log_class)
        self.register_buffer("known", known)  # classes with examples

    def forward(self, features: Tensor) -> Tensor:
        """log p(φ, y = k), (*batch, K)."""
        check_features(features, self.noise.size, self.noise.log_precision_scale)
        scale = self.noise.basis_log_precision_scale()
        density = class_log_densities(self.noise.to_basis(features), self.mean, scale)
        joint = density + (self.log_class + self.noise.basis_log_volume())
        observed = self.log_class.masked_fill(~self.known, -torch.inf).logsumexp(-1)
        return with_unobserved_classes(joint, self.log_class - observed, self.known)
