r"""Constants of `lastlayer/functional/softmax_quick.py`: fit them again, and print them.

With F the distribution function of N(0, v) + Gumbel, log(−log F) is a polynomial in the scaled
value u whose coefficients are polynomials in z = 1/(1 + 0.3 v). All of them carry a factor 1 − z,
so that the fit is exact at v = 0. Errors count most where −log F is of order one, there the
probabilities are decided; reweighted least squares makes the largest weighted error least.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch
from torch import Tensor

# Whoever starts this file, `python benchmarks/softmax_constants.py` or with `-m`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lastlayer.functional.softmax_quick import BEND, EULER, SCALE

DEGREE, DEGREE_OF_VARIANCE = 6, 5
LEAST, MOST = 3e-5, 10.0  # of −log F
NUM_ITERATIONS = 40


def log_exponent(value: Tensor, variance: Tensor) -> Tensor:
    """log(−log F), by the trapezoid rule over the Gaussian."""
    score = torch.linspace(-9, 9, 1201, dtype=value.dtype)
    weight = (-score.square() / 2).softmax(-1)
    power = (variance.sqrt() * score - value.unsqueeze(-1)).clamp(max=700).exp()
    above = -(weight * torch.expm1(-power)).sum(-1)
    below = (weight.log() - power).logsumexp(-1)
    return torch.where(above < 0.5, torch.log1p(-above.clamp(max=0.9)), below).neg().log()


def points() -> tuple[Tensor, Tensor, Tensor]:
    """Variances (V, 1), and the values (V, P) at which log(−log F) is the last (P,)."""
    variance = torch.cat([torch.zeros(1), torch.logspace(-2, 3.6, 47)]).double().unsqueeze(-1)
    level = torch.linspace(math.log(LEAST), math.log(MOST), 61, dtype=torch.float64)
    reach = 14 * (variance + 3).sqrt() + 20
    low, high = (-reach).expand(-1, len(level)), reach.expand(-1, len(level))
    for _ in range(50):
        middle = (low + high) / 2
        left = (
            torch.stack([log_exponent(x, v) for x, v in zip(middle, variance, strict=True)]) > level
        )
        low, high = middle.where(left, low), middle.where(~left, high)
    return variance, (low + high) / 2, level


def fit() -> tuple[Tensor, float, float]:
    """Coefficients (powers of u, of z), and the largest error in the middle and at all."""
    variance, value, level = points()
    z = (1 + BEND * variance).reciprocal()
    u = (value - EULER) * (1 + SCALE * variance).rsqrt()
    terms = [
        (1 - z) * z**j * u**i for i in range(DEGREE + 1) for j in range(DEGREE_OF_VARIANCE + 1)
    ]
    design = torch.stack(terms, -1).flatten(0, 1)
    exponent = level.exp().expand_as(value).flatten()
    wanted = (level + u + EULER).flatten()
    matters = torch.where(exponent < 1, exponent**0.3, math.e * exponent * (-exponent).exp()) + 1e-3
    weight = matters
    for _ in range(NUM_ITERATIONS):
        solution = torch.linalg.lstsq(design * weight[:, None], wanted * weight).solution
        error = (design @ solution - wanted).abs()
        weight = weight * (error * matters / (error * matters).max() + 0.05) ** 0.2
        weight = weight / weight.max()
    middle = error[(exponent > 0.01) & (exponent < 4)].max()
    return solution.unflatten(0, (DEGREE + 1, -1)), float(middle), float(error.max())


def main() -> None:
    coefficients, middle, largest = fit()
    for row in coefficients.tolist():
        print(f"    ({', '.join(f'{value:.8g}' for value in row)}),")
    print(
        f"largest error of log(−log F): {middle:.3g} where −log F is 0.01 to 4, {largest:.3g} else"
    )


if __name__ == "__main__":
    main()
