"""All sides over a grid of batch sizes, widths and numbers of outputs."""

from __future__ import annotations

import math
import statistics
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
# of a prediction in units of nn.Linear with softmax, in the median cell and in the worst
TARGETS = {str(DIAGONAL): (6, 15), str(LOW_RANK): (6, 15)}


def grid_rows(budget: Budget, quick: bool, with_vbll: bool) -> list[Row]:
    """All three sides over a grid of sizes; vbll only where its tensors fit in memory."""
    return _rows(MODELS, _sizes(quick), ("train", "predict"), budget, with_vbll)


def predict_rows(budget: Budget, quick: bool, with_vbll: bool) -> list[Row]:
    """Class probabilities over the same grid."""
    models = [model for model in MODELS if model.head != "regression"]
    return _rows(models[1:] if quick else models, _sizes(quick), ("predict",), budget, with_vbll)


def predict_summary(rows: list[Row]) -> list[Row]:
    """Ratios of each model, lowest, middle and highest, and whether the targets are met."""
    summary = []
    for model in dict.fromkeys(row["model"] for row in rows):
        chosen = [row for row in rows if row["model"] == model]
        slower = sorted(float(row["ours/linear"]) for row in chosen)
        faster = [float(row["vbll/ours"]) for row in chosen if not math.isnan(row["vbll/ours"])]
        middle, worst = TARGETS.get(str(model), (math.inf, math.inf))
        median = statistics.median(slower)
        summary.append(
            {
                "model": model,
                "ours/linear": f"{slower[0]:.1f} – {median:.1f} – {slower[-1]:.1f}",
                "target": f"≤ {middle:g}, ≤ {worst:g}" if middle < math.inf else "",
                "median": _verdict(median <= middle) if middle < math.inf else "",
                "worst": _verdict(slower[-1] <= worst) if middle < math.inf else "",
                "slowest vbll/ours": min(faster, default=math.nan),
                "faster than vbll": f"{sum(ratio > 1 for ratio in faster)} of {len(faster)}",
            }
        )
    return summary


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def _sizes(quick: bool) -> list[Size]:
    return [
        Size(batch, width, outputs)
        for batch in (BATCHES[:1] if quick else BATCHES)
        for width in (WIDTHS[:1] if quick else WIDTHS)
        for outputs in (OUTPUTS[:2] if quick else OUTPUTS)
    ]


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
