"""Where the time of a step against nn.Linear goes: matrix products, and everything else.

The products alone are the arithmetic bound: whatever the code around them, a generative step with
diagonal covariances has six of the size of which a linear layer has three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .contenders import Model, Size, make
from .report import Row
from .timing import interleave, progress

CASES = [
    (Model("generative", "diagonal"), Size(128, 640, 1000)),
    (Model("discriminative", "kronecker"), Size(128, 2048, 1000)),
]
QUICK_CASES = [(Model("generative", "diagonal"), Size(32, 64, 100))]
PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm"}
VIEWS = {"aten::t", "aten::transpose", "aten::expand", "aten::as_strided", "aten::detach"}
REPEATS = 5


def profile_rows(quick: bool) -> list[Row]:
    """Time by kind of operation, beside the whole step of nn.Linear."""
    rows = []
    for model, size in QUICK_CASES if quick else CASES:
        progress(f"profile: {model} {size}")
        ours, linear = (make(library, model, size) for library in ("lastlayer", "linear"))
        timings = interleave({"ours": ours.train, "linear": linear.train}, 0.2 if quick else 3, 3)
        whole, reference = timings["ours"].median, timings["linear"].median
        parts = {"whole step": (1, whole), **_breakdown(ours.train, size)}
        for what, (count, seconds) in parts.items():
            rows.append(
                {
                    "model": str(model),
                    "size": str(size),
                    "what": what,
                    "calls": count,
                    "ms": 1e3 * seconds,
                    "× nn.Linear's step": seconds / reference,
                }
            )
    return rows


def _breakdown(step: Callable[[], object], size: Size) -> dict[str, tuple[int, float]]:
    """Calls and seconds, in one step, of matrix products and of passes over tensors (K, N)."""
    step()
    with torch.profiler.profile(record_shapes=True) as profile:
        for _ in range(REPEATS):
            step()
    events = profile.key_averages(group_by_input_shape=True)
    large = [size.outputs, size.width]
    products = [event for event in events if event.key in PRODUCTS]
    passes = [
        event
        for event in events
        if event.key.startswith("aten::")
        and event.key not in PRODUCTS | VIEWS
        and large in (event.input_shapes or [])
    ]
    return {"matrix products": _sum(products), "passes over all (K, N)": _sum(passes)}


def _sum(events: list[Any]) -> tuple[int, float]:
    calls = sum(event.count for event in events) // REPEATS
    return calls, sum(event.self_cpu_time_total for event in events) / REPEATS / 1e6
