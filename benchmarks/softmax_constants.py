r"""Constants of `softmax_quick` and `softmax_entropy` in `lastlayer.functional`, fitted again.

With F the distribution function of N(0, v) + Gumbel, log(−log F) is nearly a polynomial in the
scaled value whose coefficients are polynomials in a power of the variance: cubics for mean
probabilities, of degree six for mean entropies. Their coefficients carry a factor that is zero
without variance, so that the fit is exact at v = 0. Errors count most where −log F is of order one,
there the probabilities are decided; reweighted least squares makes the largest weighted error
least. Gauss's nodes and weights are those of log S where S has the Gamma(2) distribution.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch
from torch import Tensor

# Whoever starts this file, `python benchmarks/softmax_constants.py` or with `-m`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lastlayer.functional.softmax_entropy import BEND, EULER, SCALE
from lastlayer.functional.softmax_quick import LOWEST, SPREAD

LEAST, MOST_OF_CUBICS, MOST = 3e-5, 8.0, 10.0  # of −log F
NUM_ITERATIONS, NUM_NODES = 60, 4


def log_exponent(value: Tensor, variance: Tensor) -> Tensor:
    """log(−log F), by the trapezoid rule over the Gaussian."""
    score = torch.linspace(-9, 9, 1201, dtype=value.dtype)
    weight = (-score.square() / 2).softmax(-1)
    power = (variance.sqrt() * score - value.unsqueeze(-1)).clamp(max=700).exp()
    above = -(weight * torch.expm1(-power)).sum(-1)
    below = (weight.log() - power).logsumexp(-1)
    return torch.where(above < 0.5, torch.log1p(-above.clamp(max=0.9)), below).neg().log()


def points(most: float) -> tuple[Tensor, Tensor, Tensor]:
    """Variances (V, 1), and the values (V, P) at which log(−log F) is the last (P,)."""
    variance = torch.cat([torch.zeros(1), torch.logspace(-2, 3.6, 47)]).double().unsqueeze(-1)
    level = torch.linspace(math.log(LEAST), math.log(most), 61, dtype=torch.float64)
    reach = 14 * (variance + 3).sqrt() + 20
    low, high = (-reach).expand(-1, len(level)), reach.expand(-1, len(level))
    for _ in range(50):
        middle = (low + high) / 2
        left = (
            torch.stack([log_exponent(x, v) for x, v in zip(middle, variance, strict=True)]) > level
        )
        low, high = middle.where(left, low), middle.where(~left, high)
    return variance, (low + high) / 2, level


def cubics() -> tuple[Tensor, float, float]:
    """Coefficients of log₂(−log F), (powers of b, of r), see `softmax_quick`."""
    variance, value, level = points(MOST_OF_CUBICS)
    scale, largest = (variance + SPREAD).rsqrt(), SPREAD**-0.5
    behind = (EULER - value) * scale
    bases = [(largest - scale) * scale**j for j in range(3)]
    powers = [behind.clamp(min=LOWEST) ** i for i in range(4)]
    solution, largest_error, mean_error = _fit(
        powers, bases, level, level + EULER - behind / largest
    )
    return solution * math.log2(math.e), largest_error, mean_error


def sextics() -> tuple[Tensor, float, float]:
    """Coefficients of log(−log F), (powers of u, of z), see `softmax_entropy`."""
    variance, value, level = points(MOST)
    z = (1 + BEND * variance).reciprocal()
    u = (value - EULER) * (1 + SCALE * variance).rsqrt()
    bases = [(1 - z) * z**j for j in range(6)]
    return _fit([u**i for i in range(7)], bases, level, level + u + EULER)


def _fit(
    powers: list[Tensor], bases: list[Tensor], level: Tensor, wanted: Tensor
) -> tuple[Tensor, float, float]:
    """Coefficients, and the largest error in the middle and at all."""
    terms = [base * power for power in powers for base in bases]
    design, wanted = torch.stack(terms, -1).flatten(0, 1), wanted.flatten()
    exponent = level.exp().expand_as(terms[0]).flatten()
    matters = torch.where(exponent < 1, exponent**0.3, math.e * exponent * (-exponent).exp()) + 1e-3
    weight = matters
    for _ in range(NUM_ITERATIONS):
        solution = torch.linalg.lstsq(design * weight[:, None], wanted * weight).solution
        error = (design @ solution - wanted).abs()
        weight = weight * (error * matters / (error * matters).max() + 0.05) ** 0.2
        weight = weight / weight.max()
    middle = error[(exponent > 0.01) & (exponent < 4)].max()
    return solution.unflatten(0, (len(powers), -1)), float(middle), float(error.max())


def gauss(num_nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights by the three-term recurrence (Golub and Welsch, 1969)."""
    value = torch.linspace(-45, 6, 400_001, dtype=torch.float64)
    density = (2 * value - value.exp()).softmax(-1)
    previous, current = torch.zeros_like(value), torch.ones_like(value)
    square, means, ratios = torch.ones(()), [], []
    for _ in range(num_nodes):
        last, square = square, (density * current.square()).sum()
        means.append((density * value * current.square()).sum() / square)
        ratios.append(square / last)
        previous, current = current, (value - means[-1]) * current - ratios[-1] * previous
    beside = torch.stack(ratios[1:]).sqrt()
    matrix = torch.stack(means).diag() + beside.diag(1) + beside.diag(-1)
    nodes, vectors = torch.linalg.eigh(matrix)
    return nodes, vectors[0].square()


def main() -> None:
    for name, fit in (("cubics", cubics), ("degree six", sextics)):
        coefficients, middle, largest = fit()
        print(f"{name}:")
        for row in coefficients.tolist():
            print(f"    ({', '.join(f'{value:.9g}' for value in row)}),")
        print(f"largest error: {middle:.3g} where −log F is 0.01 to 4, {largest:.3g} else")
    for name, values in zip(("nodes", "weights"), gauss(NUM_NODES), strict=True):
        print(f"{name}: ({', '.join(f'{value:.16g}' for value in values.tolist())})")


if __name__ == "__main__":
    main()
