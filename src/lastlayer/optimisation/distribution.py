"""Joint values of functions as distributions of GPyTorch, by roots of their covariance."""

from __future__ import annotations

import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator.operators import (
    BlockDiagLinearOperator,
    CholLinearOperator,
    DenseLinearOperator,
    LinearOperator,
    RootLinearOperator,
    TriangularLinearOperator,
)
from torch import Tensor

from ..functional import low_rank_root
from .conditioning import Values


def as_distribution(values: Values, noise_variance: Tensor | None) -> MultivariateNormal:
    """The distribution of the values, multitask if there are several functions.

    Covariances come with a root, so that nobody decomposes them again, and repeated points need no
    jitter beyond rounding.

    Args:
        values: of m functions at q points.
        noise_variance: of noise to add, broadcast with (*batch, q, m); None for none.
    """
    mean, factor = values
    batch_shape = torch.broadcast_shapes(mean.shape[:-2], factor.shape[:-3])
    if noise_variance is not None:
        batch_shape = torch.broadcast_shapes(batch_shape, noise_variance.shape[:-2])
    mean = mean.expand(*batch_shape, *mean.shape[-2:])
    factor = factor.expand(*batch_shape, *factor.shape[-3:])
    if mean.shape[-1] == 1:
        noise = None if noise_variance is None else noise_variance.mT.squeeze(-2)
        return MultivariateNormal(mean.squeeze(-1), _covariance(factor.squeeze(-3), noise))
    noise = None if noise_variance is None else noise_variance.mT
    blocks = BlockDiagLinearOperator(_triangular(factor, noise))
    return MultitaskMultivariateNormal(mean, blocks, interleaved=False)


def _covariance(factor: Tensor, noise_variance: Tensor | None) -> LinearOperator:
    """AAᵀ, and noise if there is some; by A itself where there are more points than columns."""
    if noise_variance is None and factor.shape[-2] > factor.shape[-1]:
        return RootLinearOperator(DenseLinearOperator(factor))
    return _triangular(factor, noise_variance)


def _triangular(factor: Tensor, noise_variance: Tensor | None) -> CholLinearOperator:
    """AAᵀ + diag(noise) by its Cholesky factor, found without forming it."""
    if noise_variance is None:  # rounding, so that repeated points have a factor too
        squares = factor.detach().square().sum(-1)
        largest = squares.max(-1, keepdim=True).values.clamp(min=torch.finfo(factor.dtype).tiny)
        scale = (torch.finfo(factor.dtype).eps * largest).sqrt().expand_as(squares)
    else:
        scale = noise_variance.sqrt().expand(factor.shape[:-1])
    root = low_rank_root(factor / scale.unsqueeze(-1), torch.ones_like(scale[..., 0]))
    signs = root.diagonal(dim1=-2, dim2=-1).sign()
    lower = root.mT * signs.unsqueeze(-2) * scale.unsqueeze(-1)
    return CholLinearOperator(TriangularLinearOperator(lower))
