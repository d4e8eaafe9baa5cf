"""DNN + VBLL: the paper's last layers on the features of a network that was trained without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import lastlayer as ll
from lastlayer.posttraining import cache_features

from ..harness.task import Supervised
from .deterministic import Deterministic
from .plain import PlainNetwork
from .scored import NormalizedDensity, ScoredNetwork


@dataclass(frozen=True, kw_only=True)
class Derived(Deterministic):
    """A method that begins with a trained network, and takes little time after it."""

    trained_as = Deterministic

    def cost(self, num_data: int, num_seeds: int) -> float:
        """That of some passes over the data, after the network's training."""
        return super().cost(num_data, num_seeds) / self.epochs


@dataclass(frozen=True, kw_only=True)
class PosttrainedVBLL(Derived):
    """The optimum of D-VBLL's objective on fixed features, from the trained last layer."""

    label = "DNN + D-VBLL"

    prior_variance: float = 1.0
    noise_dof: float = 1.0
    noise_scale: float = 1.0
    bias: bool = True  # the trained layer has one

    @property
    def prior(self) -> ll.Prior:
        """The paper's, by default."""
        return ll.Prior(self.prior_variance, self.noise_dof, self.noise_scale)

    def finish(self, model: nn.Module, task: Supervised) -> nn.Module:
        """The last layer made Bayesian on the training data."""
        assert isinstance(model, PlainNetwork)
        return ll.posttrain(
            model.network,
            task.train,
            "discriminative",
            prior=self.prior,
            bias=self.bias,
            covariance="dense",
            bound="jensen",
            noise="diagonal",
            progress=False,
        )


@dataclass(frozen=True, kw_only=True)
class PosttrainedGenerative(Derived):
    """G-VBLL's objective on fixed features, by gradients from the moments of each class."""

    label = "DNN + G-VBLL"

    prior_variance: float = 1.0
    noise_dof: float = 1.0
    noise_scale: float = 1.0
    head_epochs: int = 20
    head_learning_rate: float = 1e-3
    head_batch_size: int = 512

    def finish(self, model: nn.Module, task: Supervised) -> nn.Module:
        """The last layer made generative on the training data."""
        assert isinstance(model, PlainNetwork)
        assert isinstance(model.network, nn.Sequential)
        backbone = model.network[0]
        cached = cache_features(backbone, task.train, progress=False)
        data: Any = (cached.features.float(), cached.target)
        prior = ll.Prior(self.prior_variance, self.noise_dof, self.noise_scale)
        torch.manual_seed(task.seed)
        head = ll.GenerativeClassification(
            task.num_features,
            task.likelihood.num_targets,
            num_data=task.num_data,
            covariance="diagonal",
            noise="diagonal",
            concentration=1.0,
            prior=prior,
        )
        head.fit_exact(*data)
        ll.fit(
            head,
            data,
            epochs=self.head_epochs,
            batch_size=self.head_batch_size,
            learning_rate=self.head_learning_rate,
            schedule="cosine",
            initialize=False,
            seed=task.seed,
            progress=False,
        )
        return ScoredNetwork(ll.Network(backbone, head), NormalizedDensity(head))
