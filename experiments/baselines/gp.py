"""RBF GP: exact Gaussian process regression, through gpytorch in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import lastlayer as ll

from ..datasets.uci import Pair, Split
from ..method import AnyMethod, Method

try:
    import gpytorch
except ImportError as error:
    raise ImportError(
        "the Gaussian process needs gpytorch: pip install 'lastlayer[experiments]'"
    ) from error

EXACT = 100_000  # examples up to which gpytorch is to factorise, and not to iterate


class GaussianProcess(nn.Module):
    """A Gaussian process with a constant mean and a scaled RBF kernel, given data.

    Each prediction factorises the covariance of all the data anew, because twenty factors of
    8,611² numbers would not fit into memory: ask for all predictions in one call.

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
        # Wine repeats rows. A fit that interpolates them has by far the higher marginal
        # likelihood and the noise at its least, and is not found from much noise.
        self.likelihood.initialize(noise=0.05)
        kernel.initialize(lengthscale=1.0)

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Tensor | ll.Predictive:
        """The predictive, or with a target the loss."""
        return self.predictive(inputs) if target is None else self.loss(inputs, target)

    def marginal(self, inputs: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Of targets before any data, (T,)."""
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
class GP(Method):
    """Hyper-parameters by the marginal likelihood; nothing is left for validation to choose."""

    label = "RBF GP"
    relative_cost = 300.0

    epochs: int = 50  # at most, iterations of L-BFGS; not in the paper, like all here
    scale_targets: bool = True  # what hyper-parameters start at is for unit variance
    ard: bool = False  # agrees better with the paper
    most_data: int = 1500  # for hyper-parameters: all, but of the largest data

    @classmethod
    def for_dataset(cls: type[AnyMethod], dataset: str, **changes: Any) -> AnyMethod:
        """On the largest data as many examples for hyper-parameters as time allows."""
        return cls(**({"most_data": 4000} if dataset == "power" else {}) | changes)

    def seeds_together(self, dataset: str) -> int:
        """Few: they are fitted one by one, and an interrupted job starts anew."""
        return 5

    def make(self, split: Split) -> GaussianProcess:
        """A process given training and validation data."""
        return GaussianProcess(split.development, self.ard)

    def fit(
        self, models: list[nn.Module], splits: Sequence[Split], checkpoint: Path | None
    ) -> list[dict[str, Any]]:
        """Maximise the marginal likelihood of training and validation data, one by one."""
        return [self.maximise(*pair) for pair in zip(models, splits, strict=True)]

    def maximise(self, model: nn.Module, split: Split) -> dict[str, Any]:
        """Of the data, or of as many as are allowed, by L-BFGS; what to note."""
        inputs, target = split.development
        generator = torch.Generator().manual_seed(split.seed)
        chosen = torch.randperm(len(inputs), generator=generator)[: self.most_data]
        optimizer = torch.optim.LBFGS(
            model.parameters(), max_iter=self.epochs, line_search_fn="strong_wolfe"
        )
        losses: list[float] = []

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = model(inputs[chosen], target[chosen])
            loss.backward()
            losses.append(loss.item())
            return loss

        optimizer.step(closure)
        return {"epochs": len(losses), "validation_nll": None, "marginal_nll": min(losses)}
