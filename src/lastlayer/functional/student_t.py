"""Gaussian last layers whose noise has a Gamma-distributed precision, and heavy tails."""

import math

import torch
from torch import Tensor

from .numerics import LOG_2PI


def gamma_correction(concentration: Tensor) -> Tensor:
    r"""How much the expected half log-precision is below half the log of the expected precision.

    $$\tfrac12(E[\log\tau] - \log E[\tau]) = \tfrac12(\psi(a) - \log a),
      \qquad \tau \sim \mathrm{Gamma}(a, b)$$

    Args:
        concentration: a, of any shape.

    Returns:
        Of that shape, below zero.
    """
    return 0.5 * (torch.digamma(concentration) - concentration.log())


def expected_student_t_log_density(
    squares: Tensor, log_precision_scale: Tensor, dof: Tensor | None
) -> Tensor:
    r"""Bound on the expected log-likelihood of noise with heavy tails, the scale of each optimal.

    The noise is a scale mixture, $N(0, \sigma^2/u)$ with $u \sim \mathrm{Gamma}(\eta/2, \eta/2)$.
    With the best posterior of u of each example and output, which is a Gamma distribution too,

    $$\log\frac{\Gamma(\frac{\eta+1}2)}{\Gamma(\frac\eta2)} - \tfrac12\log\pi\eta
      - E\log\sigma - \tfrac{\eta+1}2\log(1 + \delta/\eta), \qquad
      \delta = E[(y - w^\top\phi)^2/\sigma^2]$$

    which is the log-density of Student's t if weights and σ are certain. Without degrees of freedom
    the noise is Gaussian, and the expectation exact.

    Args:
        squares: δ, (*batch, K).
        log_precision_scale: −E log σ, (K,).
        dof: η, (K,), or None for Gaussian noise.

    Returns:
        One term per output, (*batch, K).
    """
    if dof is None:
        return torch.add(log_precision_scale - 0.5 * LOG_2PI, squares, alpha=-0.5)
    half = 0.5 * dof
    constant = torch.lgamma(half + 0.5) - torch.lgamma(half) - 0.5 * (math.pi * dof).log()
    return constant + log_precision_scale - (half + 0.5) * (squares / dof).log1p()


def expected_tail_precision(squares: Tensor, dof: Tensor) -> Tensor:
    r"""The weight that the best posterior of u leaves, $E[u] = (\eta + 1)/(\eta + \delta)$.

    Args:
        squares: δ, (*batch, K).
        dof: η, (K,).

    Returns:
        (*batch, K).
    """
    return (dof + 1) / (dof + squares)


def gamma_kl(
    concentration: Tensor, precision: Tensor, prior_concentration: float, prior_rate: float
) -> Tensor:
    r"""Divergence of Gamma(a, a/p) from Gamma(a₀, b₀), elementwise.

    $$(a - a_0)\psi(a) - \log\Gamma(a) + \log\Gamma(a_0) + a_0\log\frac{a}{p\,b_0} + p\,b_0 - a$$

    Args:
        concentration: a.
        precision: p = a/b, the mean.
        prior_concentration: a₀.
        prior_rate: b₀.
    """
    constant = math.lgamma(prior_concentration) - prior_concentration * math.log(prior_rate)
    return (
        (concentration - prior_concentration) * torch.digamma(concentration)
        - torch.lgamma(concentration)
        + prior_concentration * (concentration.log() - precision.log())
        + precision * prior_rate
        - concentration
        + constant
    )


def dof_log_prior(dof: Tensor) -> Tensor:
    """Log-density of degrees of freedom under Gamma(2, 0.1), up to a constant.

    It says little between Cauchy and Gaussian noise, with its mode at 10 (Juárez & Steel 2010).
    """
    return dof.log() - 0.1 * dof


def student_t_log_density(error: Tensor, scale_square: Tensor, dof: Tensor) -> Tensor:
    """Log-density of Student's t with given squared scales at an error, elementwise."""
    half = 0.5 * dof
    constant = torch.lgamma(half + 0.5) - torch.lgamma(half) - 0.5 * (math.pi * dof).log()
    squares = error.square() / scale_square
    return constant - 0.5 * scale_square.log() - (half + 0.5) * (squares / dof).log1p()


def student_t_entropy(dof: Tensor) -> Tensor:
    """Entropy of Student's t of unit scale in nats, elementwise."""
    half = 0.5 * dof
    beta = torch.lgamma(half) + 0.5 * math.log(math.pi) - torch.lgamma(half + 0.5)
    spread = torch.digamma(half + 0.5) - torch.digamma(half)
    return (half + 0.5) * spread + 0.5 * dof.log() + beta


def gamma_nodes(concentration: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes of Gamma(a, a), of mean one, and their log-probabilities, (*shape, num_nodes) each.

    By the trapezoidal rule for its logarithm, from where next to no mass is below: the left tail is
    exponential with rate a. For a of one and more, functions of a power of it are exact to 1e-6.

    Args:
        concentration: a, of any shape.
        num_nodes: their number.
    """
    shape = concentration.unsqueeze(-1)
    deviation = shape.rsqrt()
    low, high = -20 / shape - 4 * deviation, (1 + 7 * deviation + 30 / shape).log()
    steps = torch.linspace(0, 1, num_nodes, dtype=shape.dtype, device=shape.device)
    logs = low + (high - low) * steps
    return logs.exp(), (shape * (logs - logs.exp())).log_softmax(-1)


def gauss_gamma_nodes(concentration: Tensor) -> tuple[Tensor, Tensor]:
    """Three nodes of Gamma(a, a) and their log-probabilities, (*shape, 3): Gauss's quadrature.

    It is exact for polynomials of degree five, and so for smooth functions of a precision that
    is known to a few per cent.

    Args:
        concentration: a, of any shape, above zero.
    """
    a = concentration.unsqueeze(-1)
    # roots of the generalised Laguerre polynomial of degree three, all real
    angle = _third_of_arccosine((a + 2).rsqrt())
    turns = torch.arange(3, dtype=a.dtype, device=a.device) * (2 * math.pi / 3)
    roots = a + 2 + 2 * (a + 2).sqrt() * torch.cos(angle - turns)
    one, two = roots.roll(1, -1), roots.roll(2, -1)
    moment = a * (a + 1) - (one + two) * a + one * two
    return roots / a, (moment / ((roots - one) * (roots - two))).log()


def _third_of_arccosine(value: Tensor) -> Tensor:
    """arccos(x)/3 for x from 0 to 0.8, by Newton steps: ONNX has no arccosine of doubles."""
    angle = (0.5 * math.pi - value - value.pow(3) / 6) / 3
    for _ in range(3):
        angle = angle + (torch.cos(3 * angle) - value) / (3 * torch.sin(3 * angle))
    return angle
