"""How training time grows with the width N and the number of outputs K."""

from __future__ import annotations

import math
from typing import NamedTuple

from benchmarks.comparison import (
    DENSE,
    DIAGONAL,
    GENERATIVE,
    KRONECKER,
    LOW_RANK,
    REGRESSION,
    Budget,
    compare,
)
from benchmarks.contenders import Model, Size
from benchmarks.report import Row
from benchmarks.timing import progress


class Growth(NamedTuple):
    """Sizes to measure, and the exponents of N and K by theory."""

    model: Model
    widths: tuple[int, ...]  # with `outputs_of_widths` outputs
    outputs_of_widths: int
    outputs: tuple[int, ...]  # with `width_of_outputs` features
    width_of_outputs: int
    exponent_of_width: str
    exponent_of_outputs: str


WIDTHS, OUTPUTS, BATCH = (256, 512, 1024, 2048), (10, 30, 100, 300, 1000), 128
GROWTHS = [
    Growth(DENSE, WIDTHS, 10, OUTPUTS, 128, "2", "1"),
    Growth(DIAGONAL, WIDTHS, 1000, OUTPUTS, 2048, "1", "1"),
    Growth(LOW_RANK, WIDTHS, 300, OUTPUTS, 640, "1", "1"),
    Growth(Model("discriminative", "shared"), WIDTHS, 10, OUTPUTS, 1024, "2", "0…1"),
    Growth(KRONECKER, WIDTHS, 10, OUTPUTS, 1024, "2", "0…1"),
    Growth(REGRESSION, WIDTHS, 10, OUTPUTS, 128, "2", "1"),
    Growth(Model("regression", "shared"), WIDTHS, 10, OUTPUTS, 1024, "2", "0…1"),
    Growth(GENERATIVE, WIDTHS, 1000, OUTPUTS, 2048, "1", "1"),
    Growth(Model("generative", "diagonal", "dense"), WIDTHS, 10, OUTPUTS, 1024, "2", "0…1"),
]


def scaling_rows(budget: Budget, quick: bool) -> list[Row]:
    """Exponents of training time by least squares on logarithms, and over the last step alone."""
    rows = []
    for growth in GROWTHS:
        model = growth.model
        by_width = [Size(BATCH, width, growth.outputs_of_widths) for width in growth.widths]
        by_outputs = [Size(BATCH, growth.width_of_outputs, count) for count in growth.outputs]
        for letter, sizes, theory in (
            ("N", by_width, growth.exponent_of_width),
            ("K", by_outputs, growth.exponent_of_outputs),
        ):
            sizes = sizes[:2] if quick else sizes
            times = []
            for size in sizes:
                progress(f"scaling: {model} {size}")
                timing = compare("train", model, size, ["lastlayer"], budget)["lastlayer"]
                times.append(timing.minimum)
            values = [size.width if letter == "N" else size.outputs for size in sizes]
            rows.append(
                {
                    "model": str(model),
                    "grows": letter,
                    "from": str(sizes[0]),
                    "to": str(sizes[-1]),
                    "first_ms": 1e3 * times[0],
                    "last_ms": 1e3 * times[-1],
                    "exponent": slope(values, times),
                    "at_the_end": slope(values[-2:], times[-2:]),
                    "theory": theory,
                }
            )
    return rows


def slope(values: list[int], times: list[float]) -> float:
    """The least-squares exponent p of times ~ values^p."""
    x, y = [math.log(value) for value in values], [math.log(time) for time in times]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    products = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return products / sum((a - x_mean) ** 2 for a in x)
