"""G-VBLL with the paper's scores of out-of-distribution inputs: densities of the features."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

import lastlayer as ll

from ..harness.task import Supervised
from .generative import GenerativeVBLL
from .scored import NormalizedDensity, ScoredNetwork


@dataclass(frozen=True, kw_only=True)
class GenerativeDensity(GenerativeVBLL):
    """A generative last layer, whose score is the normalised density it learned."""

    def finish(self, model: nn.Module, task: Supervised) -> nn.Module:
        """The network with its score."""
        assert isinstance(model, ll.Network)
        assert isinstance(model.head, ll.GenerativeClassification)
        return ScoredNetwork(model, NormalizedDensity(model.head))


@dataclass(frozen=True, kw_only=True)
class GenerativeMAP(GenerativeVBLL):
    """G-VBLL's network, whose score is the density with MAP covariances of each class.

    Labels are predicted as by G-VBLL. The prior of class means in the score is N(0, sI), with s
    the variance that is given, or the likeliest.
    """

    label = "G-VBLL + MAP"
    trained_as = GenerativeDensity

    density_variance: float | Literal["evidence"] = 1.0  # s

    def cost(self, num_data: int, num_seeds: int) -> float:
        """That of one pass over the data, after G-VBLL."""
        return super().cost(num_data, num_seeds) / self.epochs / 3

    def finish(self, model: nn.Module, task: Supervised) -> nn.Module:
        """The network with its score."""
        assert isinstance(model, ll.Network)
        density = ll.ood.FeatureDensity.from_model(
            model,
            task.train,
            covariance="diagonal",
            prior=dataclasses.replace(self.prior, variance=self.density_variance),
            normalized=True,
            unit_length=False,
            power=1.0,
            progress=False,
        )

        def score(features: Tensor, _: Any) -> Tensor:
            with torch.no_grad():
                found: Tensor = density(features)
            return found

        return ScoredNetwork(model, score)
