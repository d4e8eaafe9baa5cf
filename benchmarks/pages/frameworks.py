"""Tables of docs/frameworks.md and docs/scaling.md."""

from __future__ import annotations

import math

from benchmarks.markdown import cell, provenance, record, table


def encoder() -> str:
    """Scores of an encoder with adapters."""
    measured = record("encoder.json")
    config, rows = measured["config"], measured["sections"]["encoder"]
    lines = [
        [
            *(row["model"], f"{100 * row['accuracy']:.1f} %"),
            *(f"{row['nll']:.3f}", f"{row['ece']:.3f}", f"{row['seconds']:.0f}"),
        ]
        for row in rows
    ]
    names = ["model", "accuracy", "NLL", "ECE", "processor seconds"]
    worst = max(row.get("difference after loading", 0.0) for row in rows)
    about = (
        f"{config['train']} training and {config['test']} test reviews, the first "
        f"{config['max_tokens']} tokens of each, {config['epochs']} epochs, "
        f"{config['seeds']} seed; log-probabilities of the saved and loaded model "
        f"differ by at most {worst:.1g}."
    )
    return f"{table(names, lines)}\n\n{about} {provenance(measured, 'transformers')}"


def streaming() -> str:
    """Peak memory of work on growing files."""
    measured = record("streaming.json")
    names = ["work", "rows", "data, MB", "peak, MB", "largest Ray worker, MB", "seconds"]
    lines = [
        [
            f"`{row['work']}`",
            f"{row['rows']:,}",
            *(f"{row[key]:.0f}" for key in ("data_MB", "peak_MB")),
            "–" if math.isnan(row["worker_MB"]) else f"{row['worker_MB']:.0f}",
            cell(row["seconds"]),
        ]
        for row in measured["sections"]["streaming"]
    ]
    return f"{table(names, lines)}\n\n{provenance(measured, 'ray')}"
