"""Training steps compiled by `torch.compile` beside the same steps as they are, on both sides.

Where a step makes many passes over its parameters, compiling fuses them: what remains are the
matrix products. The generative head with diagonal covariances gains most.
"""

from __future__ import annotations

from .contenders import Model, Size, make
from .report import Row
from .timing import interleave, progress

CASES = [
    (Model("generative", "diagonal"), Size(128, 640, 1000), 3.0),
    (Model("discriminative", "kronecker"), Size(128, 2048, 1000), 4.0),
]
QUICK_CASES = [(Model("generative", "diagonal"), Size(32, 64, 10), 3.0)]


def compiled_rows(seconds: float, quick: bool) -> list[Row]:
    """Our steps and nn.Linear's, eager and compiled, interleaved; quick compiles nothing."""
    rows = []
    backend = "eager" if quick else "inductor"
    for model, size, limit in QUICK_CASES if quick else CASES:
        progress(f"compiled: {model} {size}")
        timings = interleave(
            {
                (library, how): make(library, model, size, how).train
                for library in ("lastlayer", "linear")
                for how in (None, backend)
            },
            seconds,
            3,
        )
        times = {side: timing.median for side, timing in timings.items()}
        ours, linear = times["lastlayer", backend], times["linear", backend]
        minima = [timings[library, backend].minimum for library in ("lastlayer", "linear")]
        rows.append(
            {
                "model": str(model),
                "size": str(size),
                "ours_ms": 1e3 * times["lastlayer", None],
                "compiled_ms": 1e3 * ours,
                "linear_ms": 1e3 * times["linear", None],
                "linear_compiled_ms": 1e3 * linear,
                "eager/eager": times["lastlayer", None] / times["linear", None],
                "compiled/eager": ours / times["linear", None],
                "compiled/compiled": ours / linear,
                "by_minima": minima[0] / minima[1],
                "target": f"≤ {limit:g}",
                "verdict": "met" if ours / linear <= limit else "MISSED",
            }
        )
    return rows
