"""All sides over a grid of batch sizes, widths and numbers of outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
from benchmarks.contenders import FLOAT_BYTES, Model, Size, vbll_obstacle
from benchmarks.report import Row
from benchmarks.timing import progress

MODELS = [REGRESSION, DENSE, DIAGONAL, LOW_RANK, KRONECKER, GENERATIVE]
BATCHES, WIDTHS, OUTPUTS = (32, 128, 512), (50, 640, 2048), (1, 10, 100, 1000)
LIMIT = 10**9  # bytes of our own parameters


def grid_rows(budget: Budget, quick: bool, with_vbll: bool) -> list[Row]:
    """All three sides over a grid of sizes; vbll only where its tensors fit in memory."""
    sizes = [
        Size(batch, width, outputs)
        for batch in (BATCHES[:1] if quick else BATCHES)
        for width in (WIDTHS[:1] if quick else WIDTHS)
        for outputs in (OUTPUTS[:2] if quick else OUTPUTS)
    ]
    return _rows(MODELS, sizes, ("train", "predict"), budget, with_vbll)


def predict_rows(budget: Budget, quick: bool, with_vbll: bool) -> list[Row]:
    """Predictions of classes at one batch size and width."""
    sizes = [Size(128, 640, outputs) for outputs in (OUTPUTS[1:2] if quick else OUTPUTS[1:])]
    models = [model for model in MODELS if model.head != "regression"]
    return _rows(models[1:] if quick else models, sizes, ("predict",), budget, with_vbll)


def _rows(
    models: list[Model], sizes: list[Size], phases: Sequence[str], budget: Budget, with_vbll: bool
) -> list[Row]:
    rows = []
    for model in models:
        for size in sizes:
            if (size.outputs == 1) != (model.head == "regression"):
                continue  # regression with one output, classification with at least two classes
            factors = size.outputs * size.width**2 // 2 * FLOAT_BYTES
            if model.covariance == "dense" and factors > LIMIT:
                continue
            obstacle = vbll_obstacle(model, size) if with_vbll else "vbll left out"
            for phase in phases:
                progress(f"grid: {phase} {model} {size}")
                libraries = ["lastlayer", "linear", *([] if obstacle else ["vbll"])]
                timings = compare(phase, model, size, libraries, budget)
                times = {library: timing.median for library, timing in timings.items()}
                vbll = times.get("vbll", math.nan)
                rows.append(
                    {
                        "phase": phase,
                        "model": str(model),
                        "size": str(size),
                        "ours_ms": 1e3 * times["lastlayer"],
                        "linear_ms": 1e3 * times["linear"],
                        "vbll_ms": 1e3 * vbll,
                        "ours/linear": times["lastlayer"] / times["linear"],
                        "vbll/ours": vbll / times["lastlayer"],
                        "remark": obstacle or "",
                    }
                )
    return rows
