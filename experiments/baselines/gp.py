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


class Process(gpytorch.models.ExactGP):
    """A constant mean and a scaled RBF kernel."""

    def __init__(self, data: Pair, likelihood: Any, num_length_scales: int | None) -> None:
        inputs, target = (values.double() for values in data)
        super().__init__(inputs, target.squeeze(-1), likelihood)
        self.mean = gpytorch.means.ConstantMean()
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=num_length_scales)
        self.kernel = gpytorch.kernels.ScaleKernel(kernel)
        self.double()

    def forward(self, inputs: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at some inputs, (T, N)."""
        return gpytorch.distributions.MultivariateNormal(self.mean(inputs), self.kernel(inputs))


class GaussianProcess(nn.Module):
    """A Gaussian process given data, with the two calls of this package.

    Predictions factorise the covariance of all the data anew each time and keep nothing, because
    twenty factors of 8,611² numbers would not fit into memory: ask for all of them in one call.

    Args:
        data: to condition on, (T, N) and (T, 1).
        ard: whether each input has a length scale of its own.
    """

    def __init__(self, data: Pair, ard: bool) -> None:
        super().__init__()
        # the default least noise, 1e-4 of the variance of the targets, would bind on some data
        constraint = gpytorch.constraints.GreaterThan(1e-6)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=constraint)
        self.process = Process(data, self.likelihood, data[0].shape[-1] if ard else None)

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Tensor | ll.Predictive:
        """The predictive, or with a target the negative log marginal likelihood over T."""
        with gpytorch.settings.max_cholesky_size(EXACT):
            return self.predictive(inputs) if target is None else self.loss(inputs, target)

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        """−log p(y)/T of any data, those conditioned on or not."""
        marginal = self.likelihood(self.process.forward(inputs.double()))
        return -marginal.log_prob(target.double().squeeze(-1)) / len(inputs)

    def predictive(self, inputs: Tensor) -> ll.GaussianPredictive:
        """The posterior of the function, and noise, (T, 1) each."""
        self.process.eval()
        latent = self.process(inputs.double())
        mean, variance = latent.mean.unsqueeze(-1), latent.variance.unsqueeze(-1)
        self.process.train()  # forgets the factor
        parts = mean, variance, self.likelihood.noise.expand_as(mean)
        return ll.GaussianPredictive(*(part.to(inputs) for part in parts))


@dataclass(frozen=True, kw_only=True)
class GP(Method):
    """Hyper-parameters by the marginal likelihood; nothing is left for validation to choose."""

    label = "RBF GP"

    epochs: int = 50  # iterations of L-BFGS, each on all the data; not in the paper
    scale_targets: bool = True  # hyper-parameters start at one; not in the paper
    ard: bool = False
    most_data: int = 2000  # for hyper-parameters; more than all but power have

    @classmethod
    def for_dataset(cls: type[AnyMethod], dataset: str, **changes: Any) -> AnyMethod:
        """The same for all."""
        return cls(**changes)

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
        return {"epochs": len(losses), "validation_nll": None, "marginal_nll": losses[-1]}
