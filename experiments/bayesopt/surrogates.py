"""Surrogates that draw functions: those of BoTorch and of this package, and an ensemble."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

try:
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.model import Model
    from botorch.sampling.pathwise.posterior_samplers import get_matheron_path_model
    from gpytorch.mlls import ExactMarginalLogLikelihood
except ImportError as error:
    raise ImportError(
        "Bayesian optimisation needs botorch: pip install -e '.[botorch,experiments]'"
    ) from error

from lastlayer.botorch import FeatureTraining, LastLayerModel

from .draws import Draws

WIDTH, DEPTH = 64, 4  # of the network that BoTorch's community model has: 1 + 3 layers of ELU


class Surrogate(Protocol):
    """Something from which functions can be drawn."""

    def draw(self, count: int) -> Draws:
        """Functions from the posterior."""


@dataclass(frozen=True)
class Paths:
    """A model of BoTorch that draws functions."""

    model: Any

    def draw(self, count: int) -> Draws:
        """Functions from the posterior."""
        drawn = get_matheron_path_model(self.model, sample_shape=torch.Size([count]))
        return lambda points: drawn(points.unsqueeze(-2)).squeeze(-2)


def fitted(model: Model) -> Model:
    """A Gaussian process, fitted by maximum a posteriori."""
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def gaussian_process(points: Tensor, values: Tensor) -> Paths:
    """BoTorch's Gaussian process with its defaults."""
    return Paths(fitted(SingleTaskGP(points, values)))


class LastLayers:
    """Fitted models of this package, one for each objective, with lengths of its own."""

    def __init__(self, points: Tensor, values: Tensor, **training: Any) -> None:
        plan = FeatureTraining(**training)
        columns = values.split(1, -1)
        self.models = [LastLayerModel(points, y, training=plan).fit() for y in columns]

    def observe(self, points: Tensor, values: Tensor, tolerance: float) -> None:
        """Learn from all observations, of which the last are new."""
        known = len(self.models[0].train_inputs[0])
        for model, column in zip(self.models, values.split(1, -1), strict=True):
            model.observe(points[known:], column[known:], tolerance=tolerance)

    def draw(self, count: int) -> Draws:
        """Functions from the posteriors."""
        drawn = [Paths(model).draw(count) for model in self.models]
        return lambda points: torch.cat([values(points) for values in drawn], -1)


class _Standardised:
    """Surrogates of standardised values, (n, m)."""

    def __init__(self, values: Tensor) -> None:
        self.location, self.scale = values.mean(0), values.std(0).clamp(min=1e-12)
        self.target = (values - self.location) / self.scale

    def in_units(self, draws: Draws) -> Draws:
        """Draws in the units of the values."""
        return lambda points: self.location + self.scale * draws(points)


class CommunityVBLL(_Standardised):
    """The model in `botorch_community`, one for each output: it takes no more."""

    def __init__(self, points: Tensor, values: Tensor, epochs: int) -> None:
        from botorch_community.models.vblls import VBLLModel

        super().__init__(values)
        self.models = []
        for column in self.target.split(1, -1):
            model = VBLLModel(points.shape[-1], WIDTH, num_layers=DEPTH - 1)
            model.fit(points, column, optimization_settings={"num_epochs": epochs})
            model.model.requires_grad_(False)
            self.models.append(model)

    def draw(self, count: int) -> Draws:
        """Functions of drawn weights."""
        weights = [m.head.W().rsample(torch.Size([count])).squeeze(-2) for m in self.models]

        def draws(points: Tensor) -> Tensor:
            pairs = zip(self.models, weights, strict=True)
            return torch.stack([(m.backbone(points) * w).sum(-1) for m, w in pairs], -1)

        return self.in_units(draws)


def layers(num_inputs: int, num_outputs: int) -> nn.Sequential:
    """A network with a linear last layer."""
    sizes = [num_inputs, *[WIDTH] * (DEPTH - 1)]
    hidden = [part for size in sizes for part in (nn.Linear(size, WIDTH), nn.ELU())]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, num_outputs)).double()


class DeepEnsemble(_Standardised):
    """Networks trained on the squared error, from different initial weights."""

    def __init__(self, points: Tensor, values: Tensor, members: int, steps: int) -> None:
        super().__init__(values)
        self.members = [self._member(points, steps) for _ in range(members)]

    def _member(self, points: Tensor, steps: int) -> nn.Module:
        model = layers(points.shape[-1], self.target.shape[-1])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
        for _ in range(steps):
            rows = torch.randint(len(points), (32,))
            loss = nn.functional.mse_loss(model(points[rows]), self.target[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model.requires_grad_(False)

    def draw(self, count: int) -> Draws:
        """Members, drawn with replacement."""
        chosen = torch.randint(len(self.members), (count,)).tolist()

        def draws(points: Tensor) -> Tensor:
            each = enumerate(chosen)
            return torch.stack([self.members[i](points[..., k, :]) for k, i in each], -2)

        return self.in_units(draws)
