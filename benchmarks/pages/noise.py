"""Tables on noise that depends on the input, on outliers, and on wrong labels."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.markdown import cell, provenance, record, table


def varying() -> str:
    """NLL and coverage where the noise grows with a column."""
    names = ["model", "test NLL", "covered, low noise", "middle", "high"]
    keys = ("coverage, low", "coverage, middle", "coverage, high")
    return _rendered(
        "noise",
        names,
        lambda row: [row["model"], _deviation(row, "nll"), *(_share(row[key]) for key in keys)],
    )


def outliers() -> str:
    """Errors of the mean with and without outliers among the training targets."""
    names = ["model", "RMSE with outliers", "without"]
    return _rendered(
        "outliers",
        names,
        lambda row: [row["model"], _deviation(row, "with outliers"), _deviation(row, "without")],
    )


def speed() -> str:
    """Training steps beside the layers of the vbll package."""
    names = ["head", "size", "ours", "vbll", "faster", "of Regression's time"]
    return _rendered(
        "speed",
        names,
        lambda row: [
            *(f"`{row['head']}`", row["size"]),
            *(f"{cell(row[key])} ms" for key in ("ours_ms", "vbll_ms")),
            *(f"{row['faster']:.1f}×", f"{row['of Regression']:.1f}×"),
        ],
    )


def labels() -> str:
    """Scores of right labels where given ones are wrong in two regions."""
    measured = record("labels-regions.json")
    scores = ("NLL", "NLL in the regions", "accuracy in the regions")
    names = [name for score in scores for name in (score, "difference")]
    rows = [
        [
            row["wrong"],
            row["model"],
            *(text for score in scores for text in _compared(row, score)),
            _deviation(row, "AUROC"),
        ]
        for row in measured["sections"]["regions"]
    ]
    return f"{table(['wrong labels', 'model', *names, 'AUROC'], rows)}\n\n{provenance(measured)}"


def _compared(row: dict[str, Any], score: str) -> tuple[str, str]:
    """A mean, and its difference from the reference with a standard error."""
    difference = f"{score}, difference"
    same = row[f"{difference} ±"] == 0
    return f"{row[score]:.3f}", "–" if same else _deviation(row, difference)


def label_priors() -> str:
    """Scores of right labels by the prior of the log-odds."""
    measured = record("labels-priors.json")
    keys = ("NLL", "NLL in the regions", "AUROC")
    rows = [
        [row["wrong"], row["prior"], *(_deviation(row, key) for key in keys)]
        for row in measured["sections"]["priors"]
    ]
    names = ["wrong labels", "prior", *keys]
    return f"{table(names, rows)}\n\n{provenance(measured)}"


def priors() -> str:
    """Held-out NLL by the prior of the log-noise."""
    rows = record("noise-priors.json")["sections"]["priors"]
    priors = [name for name in rows[0] if f"{name} ±" in rows[0]]
    return _rendered(
        "priors",
        ["noise", "rows", *priors],
        lambda row: [row["noise"], str(row["rows"]), *(_deviation(row, name) for name in priors)],
    )


def _rendered(section: str, names: list[str], line: Any) -> str:
    measured = record(f"noise-{section}.json")
    rows = [line(row) for row in measured["sections"][section]]
    return f"{table(names, rows)}\n\n{provenance(measured)}"


def _deviation(row: dict[str, Any], name: str) -> str:
    """A mean and its standard error."""
    error = row[f"{name} ±"]
    if math.isnan(row[name]):
        return "–"
    return f"{row[name]:.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.0f} %"
