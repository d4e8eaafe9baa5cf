"""Hyperparameters of Gaussian classes by the evidence (type-II maximum likelihood)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

POINTS, ROUNDS, STEPS = 9, 14, 3  # of a grid in each direction, its halvings, Newton's steps


def covariance_evidence(eigenvalues: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    r"""The prior of a covariance that makes a scatter likeliest.

    For Σ ~ inverse-Wishart(ν, ctI) with c = ν − N − 1, whose mean is tI, and n examples of
    N(0, Σ) with scatter S = Σ_t φ_tφ_tᵀ, the evidence is

    $$\log p(S) = \tfrac{\nu N}2\log ct - \tfrac{\nu+n}2\log|ctI+S|
      + \log\Gamma_N(\tfrac{\nu+n}2) - \log\Gamma_N(\tfrac\nu2) + \mathrm{const}$$

    and the posterior mean of the covariance (ctI + S)/(c + n): c counts like so many examples.

    Args:
        eigenvalues: of S, (N,), not all zero.
        count: n, above zero, ().

    Returns:
        c, between e⁻⁹n and e⁹n, and t, () each.
    """
    size = eigenvalues.shape[-1]
    order = torch.arange(size, dtype=eigenvalues.dtype, device=eigenvalues.device) / 2

    def log_evidence(log_prior_count: Tensor, log_variance: Tensor) -> Tensor:
        prior_count = log_prior_count.exp()
        dof = prior_count + size + 1
        scale = prior_count * log_variance.exp()
        gammas = ((dof + count) / 2 - order[:, None]).lgamma() - (dof / 2 - order[:, None]).lgamma()
        logdet = (scale[..., None] + eigenvalues).log().sum(-1)
        return (dof * size * scale.log() - (dof + count) * logdet) / 2 + gammas.sum(0)

    mean = (eigenvalues.sum() / (count * size)).log()
    middle = torch.stack([count.log() + 0 * mean, mean])
    width = torch.tensor([9.0, 7.0], dtype=mean.dtype, device=mean.device)
    best = _zoom(log_evidence, middle, width)
    return best[0].exp(), best[1].exp()


def mean_evidence(squares: Tensor, counts: Tensor, size: int) -> Tensor:
    r"""The variance κ of class means in units of the noise that makes them likeliest.

    The means of T_y examples of class y are N(m, (κ + 1/T_y)Σ). With m estimated from them, their
    squared distances are K/(K − 1) too small.

    Args:
        squares: (φ̄_y − m)ᵀΣ⁻¹(φ̄_y − m) of at least two classes with examples, (K,).
        counts: T_y, (K,), above zero.
        size: N, of the features.

    Returns:
        κ, ().
    """
    larger = squares * (len(squares) / (len(squares) - 1))

    def log_evidence(log_scale: Tensor) -> Tensor:
        variance = log_scale.exp()[..., None] + 1 / counts
        return -0.5 * (larger / variance + size * variance.log()).sum(-1)

    return _zoom(log_evidence, squares.new_zeros(1), squares.new_full((1,), 20.0))[0].exp()


def prior_variance_evidence(mean: Tensor, counts: Tensor, variances: Tensor) -> Tensor:
    r"""The prior variance s of class means that makes them likeliest.

    $$\bar\phi_{yj} \sim N(0, s + \sigma_j^2/T_y)$$

    Args:
        mean: φ̄_y in the eigenbasis of the noise, (K, N).
        counts: T_y, (K,); classes without examples have no part in it.
        variances: σ_j² of the noise, (N,), above zero.

    Returns:
        s, between e⁻²⁰ and e²⁰ times the mean square, ().
    """
    seen = counts > 0
    squares, noise = mean[seen].square(), variances / counts[seen, None]

    def log_evidence(log_variance: Tensor) -> Tensor:
        return torch.stack([_log_normal(squares, noise + s.exp()) for s in log_variance])

    middle = squares.mean().clamp_min(torch.finfo(mean.dtype).tiny).log().reshape(1)
    return _zoom(log_evidence, middle, torch.full_like(middle, 20.0))[0].exp()


def _log_normal(squares: Tensor, variances: Tensor) -> Tensor:
    return -0.5 * (squares / variances + variances.log()).sum()


def _zoom(function: Callable[..., Tensor], middle: Tensor, width: Tensor) -> Tensor:
    """Where a function is largest: on a grid, then on ever smaller ones around its best point.

    Args:
        function: from the coordinates of a grid, as of `torch.meshgrid`, flat, to values.
        middle: of the first grid, (D,).
        width: from the middle to its ends, (D,).
    """
    steps = torch.linspace(-1, 1, POINTS, dtype=middle.dtype, device=middle.device)
    for _ in range(ROUNDS):
        axes = [center + extent * steps for center, extent in zip(middle, width, strict=True)]
        grid = torch.stack([axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij")])
        values = function(*grid)
        middle = grid[:, values.argmax()]
        width = width / 2  # slowly, for the best point of a ridge moves along it

    def value(point: Tensor) -> Tensor:
        return function(*point.unsqueeze(-1)).squeeze(-1)

    for _ in range(STEPS):  # to more digits than differences of values can tell
        slope, curvature = torch.func.grad(value)(middle), torch.func.hessian(value)(middle)
        step = -torch.linalg.lstsq(curvature, slope.unsqueeze(-1)).solution.squeeze(-1)
        near = step.isfinite().all() & (step.abs() <= 8 * width).all()  # else at an end of the grid
        middle = torch.where(near, middle + step, middle)
    return middle
