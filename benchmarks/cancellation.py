"""What expanding the quadratics of the generative head costs in digits, and saves in time.

Log-densities of K Gaussians by matrix products cancel where classes are far apart; the few
likeliest classes are recomputed. Errors are of log p(y|φ) of the three likeliest classes,
against the difference form in double precision.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from lastlayer import functional
from lastlayer.functional import densities

from .report import Row
from .timing import interleave, progress

BATCH, WIDTH, CLASSES, TOP = 128, 640, 100, 3


def cancellation_rows(quick: bool) -> list[Row]:
    """Largest error and time of three ways, for classes ever farther from each other or zero."""
    rows = []
    for spread, offset in [(1.0, 0.0), (30.0, 0.0), (1000.0, 0.0), (1.0, 1000.0), (1.0, 1e5)]:
        progress(f"cancellation: spread {spread:g}, offset {offset:g}")
        generator = torch.Generator().manual_seed(0)
        mean = offset + spread * torch.randn(CLASSES, WIDTH, generator=generator)
        # Halfway between two classes, so that the answer is not certain.
        pairs = torch.randint(CLASSES, (2, BATCH), generator=generator)
        features = 0.5 * (mean[pairs[0]] + mean[pairs[1]])
        features = features + torch.randn(BATCH, WIDTH, generator=generator)
        variance = 1 + torch.rand(CLASSES, WIDTH, generator=generator)
        truth = _differences(features.double(), mean.double(), variance.double())
        ways: dict[str, Callable[[], Tensor]] = {
            "lastlayer": functools.partial(_expanded, features, mean, variance, 4),
            "not refined": functools.partial(_expanded, features, mean, variance, 0),
            "differences": functools.partial(_differences, features, mean, variance),
        }
        timings = interleave(ways, seconds=0.1 if quick else 2.0, min_rounds=2)
        row: Row = {"class_spread": spread, "offset": offset}
        for name, way in ways.items():
            row[f"{name}: error"] = _error(way(), truth)
        for name, timing in timings.items():
            row[f"{name}: ms"] = 1e3 * timing.median
        rows.append(row)
    return rows


def _expanded(features: Tensor, mean: Tensor, variance: Tensor, num_refined: int) -> Tensor:
    precision = functional.GaussianPrecision(variance.reciprocal(), None, -variance.log().sum(-1))
    before = densities.NUM_REFINED
    densities.NUM_REFINED = num_refined
    try:
        return functional.gaussian_log_densities(features, mean, precision)
    finally:
        densities.NUM_REFINED = before


def _differences(features: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    squares = (features.unsqueeze(1) - mean).square() / variance  # (B, K, N)
    constant = variance.log().sum(-1) + features.shape[-1] * functional.LOG_2PI
    return -0.5 * (squares.sum(-1) + constant)


def _error(densities: Tensor, truth: Tensor) -> float:
    likely = truth.topk(TOP, -1).indices
    difference = densities.double().log_softmax(-1) - truth.log_softmax(-1)
    return float(difference.gather(-1, likely).abs().max())
