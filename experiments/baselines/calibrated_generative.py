"""G-VBLL + `posttrain`: features of a generative last layer, and a discriminative one on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import lastlayer as ll

from .calibrated_posttrained import calibrated, calibration_remarks
from .generative import GenerativeVBLL
from .generative_densities import GenerativeDensity


@dataclass(frozen=True, kw_only=True)
class CalibratedGenerative(GenerativeVBLL):
    """G-VBLL's network, then `posttrain` of its linear logits, whose prior held-out data choose.

    They also say whether a temperature helps; the score is GEN, at no temperature.
    """

    label = "G-VBLL + `posttrain`"
    trained_as = GenerativeDensity

    def cost(self, num_data: int, num_seeds: int) -> float:
        """That of some passes over the data, after G-VBLL."""
        return super().cost(num_data, num_seeds) / self.epochs

    def finish(self, model: nn.Module, task: Any) -> nn.Module:
        """The network with a discriminative posterior, its temperature and its score."""
        assert isinstance(model, ll.Network)
        assert isinstance(model.head, ll.GenerativeClassification)
        return calibrated(nn.Sequential(model.backbone, linear_logits(model.head)), task)

    def remarks(self, model: nn.Module) -> dict[str, Any]:
        """The head, its prior and the temperature."""
        return calibration_remarks(model)


@torch.no_grad()
def linear_logits(head: ll.GenerativeClassification) -> nn.Linear:
    r"""The logits of a head whose class means are certain, linear in the features.

    $$z_k = \bar\mu_k^\top\Sigma^{-1}\phi - \tfrac12\bar\mu_k^\top\Sigma^{-1}\bar\mu_k
      + \log\alpha_k$$
    """
    mean = head.mean
    weight = torch.linalg.solve(head.noise.covariance(), mean.mT).mT
    layer = nn.Linear(head.num_features, head.num_outputs, device=mean.device, dtype=mean.dtype)
    layer.weight.copy_(weight)
    layer.bias.copy_(head.concentration.log() - 0.5 * (weight * mean).sum(-1))
    return layer
