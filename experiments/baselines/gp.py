"""RBF GP: exact Gaussian process regression, through gpytorch in double precision."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

import lastlayer as ll

from ..harness.likelihood import Pair
from ..harness.task import Supervised
from .fitted import Fitted

try:
    import gpytorch
except ImportError as error:
    raise ImportError(
        "the Gaussian process needs gpytorch: pip install 'lastlayer[experiments]'"
    ) from error

EXACT = 100_000  # examples up to which gpytorch is to factorise, and not to iterate
STEPS = 0.3, 0.03  # of a search, in logarithms: the first and the last


class GaussianProcess(nn.Module):
    """A Gaussian process with a constant mean and a scaled RBF kernel, given data.

    Each prediction factorises the covariance of all the data anew, because the factors of many
    seeds would not fit into memory: ask for all predictions in one call.

    Args:
        data: to condition on, (T, N) and (T, 1).
        ard: whether each input has a length scale of its own.
    """

    inputs: Tensor
    target: Tensor

    def __init__(self, data: Pair, ard: bool) -> None:
        super().__init__()
        self.register_buffer("inputs", data[0])
        self.register_buffer("target", data[1])
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=data[0].shape[-1] if ard else None)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(kernel)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()  # of variance 1e-4 at least
        self.double()
        # Where rows repeat, a fit that interpolates them has by far the higher marginal likelihood
        # and the noise at its minimum, and is not found from much noise.
        self.likelihood.initialize(noise=0.05)
        kernel.initialize(lengthscale=1.0)

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Tensor | ll.Predictive:
        """The predictive, or with a target the loss."""
        return self.predictive(inputs) if target is None else self.loss(inputs, target)

    def marginal(self, inputs: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The distribution of targets before any data, (T,)."""
        prior = gpytorch.distributions.MultivariateNormal(self.mean(inputs), self.kernel(inputs))
        return self.likelihood(prior)

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        """The negative log marginal likelihood of these data alone, divided by T."""
        with gpytorch.settings.max_cholesky_size(EXACT):
            marginal = self.marginal(inputs.double())
            return -marginal.log_prob(target.double().squeeze(-1)) / len(inputs)

    def predictive(self, inputs: Tensor) -> ll.GaussianPredictive:
        """The posterior of the function given all the data, and noise, (*batch, 1) each."""
        new, marginal = inputs.double(), self.marginal(self.inputs)
        factor = torch.linalg.cholesky(marginal.covariance_matrix)
        cross = self.kernel(self.inputs, new).to_dense()  # (T, batch)
        error = self.target - marginal.mean.unsqueeze(-1)
        white = torch.linalg.solve_triangular(factor, torch.cat([cross, error], -1), upper=False)
        white, error = white[:, :-1], white[:, -1:]
        mean = self.mean(new).unsqueeze(-1) + white.mT @ error
        variance = self.kernel(new, diag=True) - white.square().sum(0)
        variance = variance.clamp(min=0.0).unsqueeze(-1)  # of rounding
        parts = mean, variance, self.likelihood.noise.expand_as(mean)
        return ll.GaussianPredictive(*(part.to(inputs) for part in parts))


@dataclass(frozen=True, kw_only=True)
class GP(Fitted):
    """Exact Gaussian process regression; hyperparameters by the marginal likelihood.

    Nothing is left for validation to choose. Hyperparameters need all the data: with more of them,
    length scales become shorter and the noise smaller.
    """

    label = "RBF GP"
    relative_cost = 80.0
    common_cost = 0.0  # seeds are fitted one by one

    epochs: int = 50  # the maximum of iterations; not in the paper, like all here
    scale_targets: bool = True  # initial hyperparameters are for unit variance
    ard: bool = False  # agrees better with the paper
    most_data: int = 1500  # with more, the search is without gradients; of all data either way

    def make(self, task: Supervised) -> GaussianProcess:
        """A process given training and validation data."""
        return GaussianProcess(task.development, self.ard)

    def fit(
        self, models: list[nn.Module], tasks: Sequence[Supervised], checkpoint: Path | None
    ) -> list[dict[str, Any]]:
        """Maximise the marginal likelihood of training and validation data, one by one."""
        notes = []
        for model in models:
            assert isinstance(model, GaussianProcess)
            maximise = climb if len(model.inputs) <= self.most_data else search
            losses = maximise(model, self.epochs)
            notes.append(
                {"epochs": len(losses), "validation_nll": None, "marginal_nll": min(losses)}
            )
        return notes


def climb(model: GaussianProcess, max_iterations: int) -> list[float]:
    """Maximise the marginal likelihood by L-BFGS; the losses on the way."""
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=max_iterations, line_search_fn="strong_wolfe"
    )
    losses: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model.loss(model.inputs, model.target)
        loss.backward()
        losses.append(loss.item())
        return loss

    optimizer.step(closure)
    return losses


@torch.no_grad()
def search(model: GaussianProcess, max_iterations: int) -> list[float]:
    """The same without gradients, which take several times as long; the losses on the way.

    Mean and scale have a closed form given the others, so that only length scales and the ratio of
    noise to scale are left, too few for gradients to be worth their time.
    """
    rbf, target = model.kernel.base_kernel, model.target
    least = 1.0001 * model.likelihood.noise_covar.raw_noise_constraint.lower_bound
    white_noise = model.likelihood.noise / model.kernel.outputscale
    initial = torch.cat([rbf.lengthscale.flatten(), white_noise]).log()
    losses: list[float] = []
    best: dict[str, Tensor] = {}

    def profile(logs: np.ndarray) -> float:
        *lengths, ratio = np.exp(logs)
        rbf.initialize(lengthscale=torch.tensor(lengths).reshape_as(rbf.lengthscale))
        correlation = rbf(model.inputs).to_dense()
        correlation.diagonal().add_(ratio)
        factor = torch.linalg.cholesky(correlation)
        both = torch.cat([target, torch.ones_like(target)], -1)
        white, ones = torch.linalg.solve_triangular(factor, both, upper=False).unbind(-1)
        mean = ones.dot(white) / ones.dot(ones)
        square = (white - mean * ones).square().mean()
        scale = square.clamp(min=least / ratio)  # the best one that leaves the noise its least
        terms = scale.log() + square / scale + math.log(2 * math.pi)
        losses.append((factor.diagonal().log().mean() + 0.5 * terms).item())
        if losses[-1] == min(losses):
            model.mean.initialize(constant=mean)
            model.kernel.initialize(outputscale=scale)
            model.likelihood.initialize(noise=scale * ratio)
            best.update(copy.deepcopy(model.state_dict()))
        return losses[-1]

    options = dict(zip(("initial_tr_radius", "final_tr_radius"), STEPS, strict=True))
    minimize(
        profile, initial.numpy(), method="COBYQA", options={**options, "maxfev": max_iterations}
    )
    if not best:
        raise FloatingPointError("no marginal likelihood was a number; check the data for NaN")
    model.load_state_dict(best)
    return losses
