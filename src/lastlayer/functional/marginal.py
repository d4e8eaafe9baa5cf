"""The marginal likelihood of a linear model with Gaussian weights, and its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .numerics import LOG_2PI


def log_marginal_likelihood(target: Tensor, factor: Tensor, noise_scale: Tensor) -> Tensor:
    r"""Log-density of targets, log N(y | 0, AAᵀ + σ²I), for being maximised over A and σ.

    As `low_rank_log_density`, whose gradient takes three times as long: here the gradient is in
    closed form. With $K = AA^\top + \sigma^2 I$ and $\alpha = K^{-1}y$ it is

    $$\partial_A = \alpha(A^\top\alpha)^\top - K^{-1}A, \qquad
      \partial_\sigma = \sigma(\alpha^\top\alpha - \mathrm{tr}\,K^{-1})$$

    $AA^\top + \sigma^2I$, or $A^\top A + \sigma^2I$ where it is smaller, is formed and factorised
    in double precision; NaN where it is singular even so. It can be differentiated once.

    Args:
        target: y, (*batch, n).
        factor: A, (*batch, n, r).
        noise_scale: σ, (*batch,), above zero.

    Returns:
        One value for each target, (*batch,).
    """
    return _LogMarginalLikelihood.apply(target, factor, noise_scale)  # type: ignore[no-untyped-call]


class _LogMarginalLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, target: Tensor, factor: Tensor, noise_scale: Tensor) -> Tensor:
        y, wide, variance = target.double(), factor.double(), noise_scale.double().square()
        (num_rows, rank), tall = wide.shape[-2:], wide.shape[-2] > wide.shape[-1]
        gram = wide.mT @ wide if tall else wide @ wide.mT
        gram.diagonal(dim1=-2, dim2=-1).add_(variance.unsqueeze(-1))
        root, failed = torch.linalg.cholesky_ex(gram)
        root = root.masked_fill((failed != 0)[..., None, None], torch.nan)
        logdet = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        if tall:  # the residual of ridge regression, which does not cancel
            logdet = logdet + (num_rows - rank) * variance.log()
            weight = torch.cholesky_solve(wide.mT @ y.unsqueeze(-1), root)
            alpha = (y.unsqueeze(-1) - wide @ weight) / variance[..., None, None]
        else:
            alpha = torch.cholesky_solve(y.unsqueeze(-1), root)
            weight = wide.mT @ alpha
        alpha, weight = alpha.squeeze(-1), weight.squeeze(-1)  # α, (*batch, n), and Aᵀα
        squares = variance * alpha.square().sum(-1) + weight.square().sum(-1)
        ctx.save_for_backward(wide, noise_scale, root, alpha, weight)
        return (-0.5 * (squares + logdet + num_rows * LOG_2PI)).to(target.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        wide, noise_scale, root, alpha, weight = ctx.saved_tensors
        grad = grads[0].double()
        inverse = torch.cholesky_inverse(root)
        tall = wide.shape[-2] > wide.shape[-1]
        product = wide @ inverse if tall else inverse @ wide  # K⁻¹A, by the push-through identity
        trace = inverse.diagonal(dim1=-2, dim2=-1).sum(-1)
        if tall:
            excess = wide.shape[-2] - wide.shape[-1]
            trace = trace + excess / noise_scale.double().square()
        of_factor = alpha.unsqueeze(-1) * weight.unsqueeze(-2) - product
        of_scale = noise_scale.double() * (alpha.square().sum(-1) - trace)
        dtype = noise_scale.dtype
        return (
            (-grad.unsqueeze(-1) * alpha).to(dtype),
            (grad[..., None, None] * of_factor).to(dtype),
            (grad * of_scale).to(dtype),
        )
