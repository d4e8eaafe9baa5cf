"""Tables of docs/frameworks.md and docs/scaling.md."""

from __future__ import annotations

import math
import statistics

from benchmarks.markdown import cell, provenance, record, table


def encoder() -> str:
    """Scores of an encoder with adapters."""
    measured = record("encoder.json")
    config, rows = measured["config"], measured["sections"]["encoder"]
    models = dict.fromkeys(row["model"] for row in rows)
    lines = []
    for model in models:
        seeds = [row for row in rows if row["model"] == model]
        accuracy = _mean([100 * row["accuracy"] for row in seeds], ".1f")
        scores = [_mean([row[name] for row in seeds], ".3f") for name in ("nll", "ece")]
        seconds = statistics.fmean(row["seconds"] for row in seeds)
        lines.append([model, f"{accuracy} %", *scores, f"{seconds:.0f}"])
    names = ["model", "accuracy", "NLL", "ECE", "processor seconds"]
    worst = max(row.get("difference after loading", 0.0) for row in rows)
    about = (
        f"{config['train']} training and {config['test']} test reviews, the first "
        f"{config['max_tokens']} tokens of each, {config['epochs']} epochs, "
        f"seeds: {config['seeds']}; log-probabilities of the saved and loaded model "
        f"differ by at most {worst:.1g}."
    )
    return f"{table(names, lines)}\n\n{about} {provenance(measured, 'transformers')}"


def _mean(values: list[float], form: str) -> str:
    """A mean, with its standard error where there are several values."""
    mean = f"{statistics.fmean(values):{form}}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values) / math.sqrt(len(values)):{form}}"


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
