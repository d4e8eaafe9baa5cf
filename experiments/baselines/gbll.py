"""GBLL: a Gaussian Bayesian last layer, trained on the exact marginal likelihood.

Described by Watson et al. (AISTATS 2021). With features Φ of all T training examples, a constant
among them, weights w ~ N(0, sI) and noise of variance σ², the posterior of the weights has

    precision  L = I/s + ΦᵀΦ/σ² = B/s,  with  B = I + (s/σ²) ΦᵀΦ,
    mean       m = (s/σ²) B⁻¹ Φᵀy.

No eigenvalue of B is less than one, and in double precision its Cholesky factor needs no jitter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

import lastlayer as ll

from ..harness.task import Supervised
from .fitted import Fitted


class Posterior(NamedTuple):
    """The posterior of the last layer, N(m, s B⁻¹)."""

    mean: Tensor  # m, (N, 1)
    factor: Tensor  # of Cholesky, of B, (N, N)
    prior_variance: Tensor  # s, (1,)

    def whiten(self, vectors: Tensor) -> Tensor:
        """Whitened columns u with uᵀu = vᵀL⁻¹v, (*batch, N, K), of columns v, (*batch, N, K)."""
        solved = torch.linalg.solve_triangular(self.factor, vectors, upper=False)
        return self.prior_variance.sqrt() * solved


class GaussianLastLayer(nn.Module):
    """A network with a last layer that is never a parameter: its posterior is exact.

    Training calls leave ΦᵀΦ and Φᵀy in buffers, from which predictions come. So they belong to
    the features before the latest step of the optimiser, until `observe` is called again.

    Args:
        network: from inputs to features, (*batch, num_features).
        num_features: without the constant.
    """

    gram: Tensor
    moment: Tensor

    def __init__(self, network: nn.Module, num_features: int) -> None:
        super().__init__()
        size = num_features + 1
        self.network = network
        self.log_prior_stddev = nn.Parameter(torch.zeros(1))
        self.log_noise_stddev = nn.Parameter(torch.zeros(1))
        self.register_buffer("gram", torch.zeros(size, size, dtype=torch.float64))
        self.register_buffer("moment", torch.zeros(size, 1, dtype=torch.float64))

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Tensor | ll.Predictive:
        """The predictive, or with the targets of all the data the loss."""
        return self.predictive(inputs) if target is None else self.loss(inputs, target)

    def features(self, inputs: Tensor) -> Tensor:
        """Those of the network and a constant, in double precision, (*batch, N)."""
        features = self.network(inputs).double()
        return torch.cat([features, torch.ones_like(features[..., :1])], -1)

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        """The negative log marginal likelihood of all the data, divided by T."""
        features = self.features(inputs)
        return self.negative_log_evidence(features, target, self.observe(features, target))

    def observe(self, features: Tensor, target: Tensor) -> Posterior:
        """The posterior given all the data; it stays for predictions, without its gradient."""
        gram, moment = features.mT @ features, features.mT @ target.double()
        self.gram.copy_(gram.detach())
        self.moment.copy_(moment.detach())
        return self.posterior(gram, moment)

    def posterior(self, gram: Tensor, moment: Tensor) -> Posterior:
        """N(m, s B⁻¹), given ΦᵀΦ and Φᵀy."""
        prior_variance = (2 * self.log_prior_stddev.double()).exp()
        ratio = prior_variance / self.noise_variance
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        # does not raise: not finite, one seed must not end the training of all
        factor = torch.linalg.cholesky_ex(identity + ratio * gram).L
        mean = ratio * torch.cholesky_solve(moment, factor)
        return Posterior(mean, factor, prior_variance)

    def negative_log_evidence(self, features: Tensor, target: Tensor, at: Posterior) -> Tensor:
        """−log p(y)/T = −log [p(y|m) p(m) / p(m|y)]/T, without a difference of large numbers."""
        error = (target.double() - features @ at.mean).square().sum() / self.noise_variance
        prior = at.mean.square().sum() / at.prior_variance
        logdet = 2 * at.factor.diagonal().log().sum()  # of B
        each = self.noise_variance.log() + math.log(2 * math.pi)
        return 0.5 * ((error + prior + logdet) / len(features) + each).sum()

    @property
    def noise_variance(self) -> Tensor:
        """σ², (1,)."""
        return (2 * self.log_noise_stddev.double()).exp()

    def predictive(self, inputs: Tensor) -> ll.GaussianPredictive:
        """Gaussian, of mean φᵀm and variances φᵀL⁻¹φ and σ², (*batch, 1) each."""
        features, posterior = self.features(inputs), self.posterior(self.gram, self.moment)
        mean = features @ posterior.mean
        variance = posterior.whiten(features.mT).square().sum(-2).unsqueeze(-1)
        parts = mean, variance, self.noise_variance.expand_as(mean)
        return ll.GaussianPredictive(*(part.to(inputs) for part in parts))


@dataclass(frozen=True, kw_only=True)
class GBLL(Fitted):
    """A Gaussian Bayesian last layer, trained on the exact marginal likelihood, for regression.

    Full batches, because log|L| does not split over data: an epoch is one step. Settings are not in
    the paper; they were chosen on validation data. The prior mean is zero: a learned one changed
    next to nothing. Weight decay also draws the logarithms of s and σ to zero, but little beside
    their gradient.
    """

    label = "GBLL"
    relative_cost = 4.0

    batch_size: int = 10_000  # at least all examples
    learning_rate: float = 3e-3
    patience: int | None = 200
    prior_stddev: float = 0.1  # initially, over the standard deviation of the targets

    def make(self, task: Supervised) -> GaussianLastLayer:
        """The network, its last layer still as in the prior."""
        num_data = len(task.development[0])
        if num_data > self.batch_size:
            raise ValueError(
                f"the marginal likelihood needs all {num_data} examples in one batch, and "
                f"batch_size={self.batch_size}; raise it"
            )
        model = self.network(task)
        scale = float(task.train[1].std())
        nn.init.constant_(model.log_prior_stddev, math.log(self.prior_stddev * scale))
        _initialise_noise(model, task)
        return model

    def network(self, task: Supervised) -> GaussianLastLayer:
        """The network and its last layer, not yet at the scale of the targets."""
        return GaussianLastLayer(task.backbone(), task.num_features)

    @torch.no_grad()
    def finish(self, model: nn.Module, task: Supervised) -> nn.Module:
        """The model with the posterior that belongs to its last features."""
        assert isinstance(model, GaussianLastLayer)
        inputs, target = task.development
        model.observe(model.features(inputs), target)
        return model


def _initialise_noise(model: GaussianLastLayer, task: Supervised) -> None:
    """Let the noise be what is best for the initial features.

    They may fit too closely before noise that begins far from there has come to where it should.
    """
    optimizer = torch.optim.LBFGS([model.log_noise_stddev], line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model.loss(*task.train)
        loss.backward()
        return loss

    optimizer.step(closure)
    model.zero_grad()
