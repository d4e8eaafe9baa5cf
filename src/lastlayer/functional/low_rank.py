"""Gaussians of covariance AAᵀ + σ²I, from A and without squaring its condition.

With A (q, r) only the smaller of q and r is factorised. Nothing fails where A has dependent rows
(repeated points) or where there is no noise.
"""

import torch
from torch import Tensor

from .numerics import LOG_2PI


def low_rank_log_density(error: Tensor, factor: Tensor, noise_scale: Tensor) -> Tensor:
    r"""Log-density of a low-rank Gaussian, log N(e | 0, AAᵀ + σ²I).

    With more rows than columns by the ridge regression of e on A, which does not cancel,

    $$e^\top(AA^\top+\sigma^2I)^{-1}e = \min_c \|e - Ac\|^2/\sigma^2 + \|c\|^2$$

    Args:
        error: e, (*batch, q).
        factor: A, (*batch, q, r).
        noise_scale: σ, (*batch,). Where it is zero and q > r, e almost never lies in the span of
            A and its log-density is −∞.

    Returns:
        One value per Gaussian, (*batch,).
    """
    num_rows, rank = factor.shape[-2:]
    root = _root(factor, noise_scale)
    constant = _logdet(root, factor, noise_scale) + num_rows * LOG_2PI
    error = error.unsqueeze(-1)
    if num_rows <= rank:
        white = torch.linalg.solve_triangular(root.mT, error, upper=False)
        return -0.5 * (white.square().sum((-2, -1)) + constant)
    coefficients = torch.cholesky_solve(factor.mT @ error, root, upper=True)
    residual = (error - factor @ coefficients).square().sum((-2, -1))
    squares = residual / noise_scale.square() + coefficients.square().sum((-2, -1))
    return torch.where(noise_scale > 0, -0.5 * (squares + constant), -torch.inf)


def low_rank_entropy(factor: Tensor, noise_scale: Tensor) -> Tensor:
    """Differential entropy of N(·, AAᵀ + σ²I) in nats, (*batch,); −∞ where it is degenerate.

    Arguments as in `low_rank_log_density`.
    """
    logdet = _logdet(_root(factor, noise_scale), factor, noise_scale)
    return 0.5 * (logdet + factor.shape[-2] * (LOG_2PI + 1))


def low_rank_information(factor: Tensor, noise_scale: Tensor) -> Tensor:
    r"""Mutual information of z and Az + σε in nats, for standard normal z and ε.

    $$I(Az + \sigma\varepsilon;\, z) = \tfrac12\log|I + AA^\top/\sigma^2|$$

    Arguments as in `low_rank_log_density`; infinite without noise. Returns (*batch,).
    """
    root = _root(factor, noise_scale)
    return _log_diagonal(root) - root.shape[-1] * noise_scale.log()


def low_rank_root(factor: Tensor, noise_scale: Tensor) -> Tensor:
    """Upper-triangular R with RᵀR = AAᵀ + σ²I, (*batch, q, q), its diagonal of any sign.

    Arguments as in `low_rank_log_density`.
    """
    return _ridge_root(factor.mT, noise_scale)


def low_rank_condition(error: Tensor, factor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""What observing e = Az + ε tells about z, for standard normal z and ε.

    With $LL^\top = I + AA^\top$, $E = L^{-1}A$ and $D = (L + I)^{-1}A$

    $$E[z \mid e] = E^\top L^{-1}e, \qquad \mathrm{Cov}[z \mid e] = CC^\top,\quad
      C = I - E^\top D$$

    so that a function Fz has the factor $FC = F - (FE^\top)D$ afterwards: a change of rank q.

    Args:
        error: e, (*batch, q), whose leading dimensions are broadcast with those of A.
        factor: A, (*batch, q, r), in units of the noise.

    Returns:
        The mean of z, (*batch, r), and E and D, (*batch, q, r) each.
    """
    eye = torch.eye(factor.shape[-2], dtype=factor.dtype, device=factor.device)
    root = torch.linalg.cholesky(eye + factor @ factor.mT)
    white = torch.linalg.solve_triangular(root, factor, upper=False)
    half = torch.linalg.solve_triangular(root + eye, factor, upper=False)
    error = torch.linalg.solve_triangular(root, error.unsqueeze(-1), upper=False)
    return (white.mT @ error).squeeze(-1), white, half


def _root(factor: Tensor, noise_scale: Tensor) -> Tensor:
    """R with RᵀR = AAᵀ + σ²I, or AᵀA + σ²I if that is smaller, (*batch, m, m)."""
    tall = factor if factor.shape[-1] < factor.shape[-2] else factor.mT
    return _ridge_root(tall, noise_scale)


def _ridge_root(tall: Tensor, noise_scale: Tensor) -> Tensor:
    """R with RᵀR = TᵀT + σ²I, (*batch, m, m), for T (*batch, n, m)."""
    eye = torch.eye(tall.shape[-1], dtype=tall.dtype, device=tall.device)
    ridge = (noise_scale[..., None, None] * eye).expand(*tall.shape[:-2], *eye.shape)
    return torch.linalg.qr(torch.cat([tall, ridge], -2)).R


def _log_diagonal(root: Tensor) -> Tensor:
    """log|det R|, (*batch,)."""
    return root.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)


def _logdet(root: Tensor, factor: Tensor, noise_scale: Tensor) -> Tensor:
    """log|AAᵀ + σ²I|, (*batch,)."""
    num_rows, rank = factor.shape[-2:]
    half = _log_diagonal(root)
    if num_rows > rank:  # matrix determinant lemma
        half = half + (num_rows - rank) * noise_scale.log()
    return 2 * half
