"""Slow, obvious oracles: the definitions, with explicit matrices and torch.distributions."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from lastlayer import Covariance


def randomize(module: torch.nn.Module, generator: torch.Generator, scale: float = 0.3) -> None:
    """Move every parameter off its initial value, so that no structure is hidden by zeros."""
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(scale * noise.to(parameter))


def dense_covariance(covariance: Covariance) -> Tensor:
    """S_k recovered from `quadratic` alone, by polarisation, (K, N, N)."""
    size = covariance.num_features
    matrices = torch.empty(covariance.num_outputs, size, size)
    eye = torch.eye(size)
    for i in range(size):
        for j in range(size):
            plus = covariance.quadratic(eye[i] + eye[j])
            minus = covariance.quadratic(eye[i] - eye[j])
            matrices[:, i, j] = (plus - minus) / 4
    return matrices


def log_marginal_likelihood(
    features: Tensor, target: Tensor, prior_row: Tensor, noise: Tensor, prior_variance: float
) -> Tensor:
    """log p(Y) of y_t = Wφ_t + ε, by the joint covariance of all targets.

    W has independent columns of covariance prior_variance · prior_row (K, K); targets are
    stacked example by example, so their covariance is s ΦΦᵀ ⊗ row + I ⊗ Σ.
    """
    num_examples, num_outputs = target.shape
    gram = prior_variance * features @ features.mT
    covariance = torch.kron(gram, prior_row) + torch.kron(torch.eye(num_examples), noise)
    mean = torch.zeros(num_examples * num_outputs)
    return MultivariateNormal(mean, covariance).log_prob(target.flatten())


def sampled(
    draw: Callable[[int], Tensor], num_samples: int = 100_000, chunk: int = 25_000
) -> tuple[Tensor, Tensor]:
    """Mean of draws (chunk, …) and its standard error."""
    draws = torch.cat([draw(chunk) for _ in range(num_samples // chunk)])
    return draws.mean(0), draws.std(0) / len(draws) ** 0.5


def assert_within_standard_errors(
    value: Tensor, mean: Tensor, error: Tensor, count: float = 5.0
) -> None:
    """The value agrees with a sampled mean, up to so many standard errors."""
    deviations = ((value - mean) / error.clamp(min=1e-12)).abs().max().item()
    assert deviations < count, f"{deviations:.1f} standard errors apart"


def minimize(
    closure: Callable[[], Tensor], parameters: Sequence[Tensor], steps: int = 2000
) -> None:
    """Descend on a smooth loss to convergence."""
    optimizer = torch.optim.LBFGS(
        parameters,
        max_iter=steps,
        tolerance_grad=1e-11,
        tolerance_change=1e-16,
        history_size=50,
        line_search_fn="strong_wolfe",
    )

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = closure()
        loss.backward()
        return loss

    optimizer.step(step)
