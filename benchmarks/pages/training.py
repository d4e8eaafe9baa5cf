"""Tables on training: many seeds, post-training, and priors."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

from benchmarks.markdown import cell, provenance, record, table


def seeds() -> str:
    """Many seeds, together and one by one."""
    measured = record("seeds.json")
    rows = [
        [
            *(str(row["seeds"]), f"{row['one_by_one_s']:.1f} s", f"{row['together_s']:.1f} s"),
            *(f"{row['ratio']:.1f}×", f"{row['steady ratio']:.1f}×", row["target"]),
        ]
        for row in measured["sections"]["seeds"]
    ]
    names = ["seeds", "one by one", "together", "faster", "once it is traced", "target"]
    epochs = measured["sections"]["seeds"][0]["epochs"]
    about = (
        f"The paper's network with two layers of 50 units, batch 32, {epochs} epochs of 720 "
        "examples, processor time, by `benchmarks/seeds.py`."
    )
    return f"{table(names, rows)}\n\n{about} {provenance(measured)}"


def tracing() -> str:
    """Training many models, with a traced step and without."""
    measured = record("tracing.json")
    rows = [
        [
            *(row["training"], str(row["models"])),
            *(f"{row['untraced_s']:.1f} s", f"{row['traced_s']:.1f} s"),
            *(f"{row['gain']:.1f}×", row["target"], row["verdict"].lower()),
        ]
        for row in measured["sections"]["tracing"]
    ]
    names = ["training", "models", "without", "with tracing", "faster", "target", ""]
    about = (
        "The same network and data, the cost of tracing included, processor time, by "
        "`benchmarks/tracing.py`."
    )
    return f"{table(names, rows)}\n\n{about} {provenance(measured)}"


def allocation() -> str:
    """Steps with freed memory kept, and with the C library's own settings."""
    measured = record("allocation.json")
    rows = [
        [
            *(row["step"], f"{1000 * row['usual_s']:.0f}", f"{1000 * row['kept_s']:.0f}"),
            f"{row['gain']:.2f}×",
        ]
        for row in measured["sections"]["allocation"]
    ]
    about = "Milliseconds of processor time, medians, by `benchmarks/allocation.py`."
    names = ["training step", "as usual", "memory kept", "faster"]
    return f"{table(names, rows)}\n\n{about} {provenance(measured)}"


def passes() -> str:
    """Passes of the solver of `posttrain`, and of AdamW."""
    records = [record(name) for name in ("posttrain.json", "posttrain-large.json")]
    rows = [
        [
            f"{row['data']}, T {row['T']}, N {row['N']}, K {row['K']}",
            *(row["covariance"], row["bound"], str(row["passes, ours"])),
            *(f"{cell(row[f'passes, {how}'])} of {row['epochs']}" for how in ("AdamW", "decayed")),
        ]
        for measured in records
        for row in measured["sections"]["passes"]
    ]
    names = ["data", "covariance", "bound", "ours", "AdamW", "AdamW, decayed"]
    about = (
        "Passes over the features to within 0.001 nats per example of the optimum; – is not within "
        "the epochs allowed. Learning rates of AdamW are the best of four. By "
        "`benchmarks/posttrain.py`."
    )
    return f"{table(names, rows)}\n\n{about} {provenance(records[0])}"


def times() -> str:
    """Seconds of post-training by covariance, beside peers."""
    measured = record("posttrain-times.json")
    rows = [
        [
            *(row["what"], f"{row['seconds']:.1f}"),
            *(f"{row['target']:g}" if row["target"] else "", str(row.get("passes", ""))),
        ]
        for row in measured["sections"]["times"]
    ]
    names = ["", "seconds", "target", "passes"]
    return f"{table(names, rows)}\n\n{provenance(measured)}"


def priors() -> str:
    """Held-out NLL of discriminative heads by their prior, bound and label noise."""
    return _by_data("priors.json", "fit", "candidate")


def generative() -> str:
    """Held-out NLL of generative heads by how they are fitted on fixed features."""
    return _by_data("generative.json", "posttrain", "fit")


def _by_data(file: str, section: str, column: str) -> str:
    """NLL with a row for each value of a column and a column for each data set."""
    measured = record(file)
    rows = measured["sections"][section]
    data = list(dict.fromkeys(row["data"] for row in rows))
    nll = {(row[column], row["data"]): row["nll"] for row in rows}
    body = [
        [value, *(f"{nll[value, name]:.3f}" for name in data)]
        for value in dict.fromkeys(row[column] for row in rows)
    ]
    names = ["", *(name.replace("_", " ") for name in data)]
    return f"{table(names, body)}\n\n{provenance(measured)}"


def posttrained(file: str) -> str:
    """Held-out NLL and calibration error of post-trained networks."""
    measured = record(file)
    rows = measured["sections"]["posttrained"]
    return f"{_means(rows, 'data')}\n\n{provenance(measured)}"


def reviews() -> str:
    """NLL and calibration error on test reviews, by the number of training reviews."""
    measured = record("reviews.json")
    rows = measured["sections"]["reviews"]
    named = [row | {"T": f"{row['T']:,}"} for row in rows]
    return f"{_means(named, 'T')}\n\n{provenance(measured)}"


def temperatures() -> str:
    """NLL above that of the best temperature, by the prior and the number of examples."""
    measured = record("temperatures.json")
    rows = measured["sections"]["temperatures"]
    excess: dict[tuple[float, int], dict[str, list[float]]] = {}
    for row in rows:
        key = float(row["stddev"]), row["examples"]
        excess.setdefault(key, {}).setdefault(row["data"], []).append(row["excess"])

    def shown(key: tuple[float, int]) -> str:
        means = [fmean(values) for values in excess[key].values()]
        return f"{fmean(means):.3f} / {max(means):.3f}"

    counts = sorted({count for _, count in excess} - {0})
    body = [["no scaling", *([shown((0.0, 0))] * len(counts))]]
    for stddev in sorted({stddev for stddev, _ in excess} - {0.0}):
        name = f"σ = {stddev:g}" if math.isfinite(stddev) else "no prior"
        body.append([name, *(shown((stddev, count)) for count in counts)])
    names = ["mean / worst problem", *(f"{count} examples" for count in counts)]
    return f"{table(names, body)}\n\n{provenance(measured)}"


def _means(rows: list[dict[str, Any]], column: str) -> str:
    """NLL / ECE, means over seeds, with a row for each method."""
    scores: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        scores.setdefault((row["method"], row[column]), []).append((row["nll"], row["ece"]))
    columns = list(dict.fromkeys(name for _, name in scores))

    def mean(key: tuple[str, str]) -> str:
        if key not in scores:
            return "–"
        return " / ".join(f"{fmean(values):.3f}" for values in zip(*scores[key], strict=True))

    body = [
        [method, *(mean((method, name)) for name in columns)]
        for method in dict.fromkeys(method for method, _ in scores)
    ]
    return table(["NLL / ECE", *(name.replace("_", " ") for name in columns)], body)


def small_network() -> str:
    """The small network of the image experiment, on all training images."""
    measured = record("small-network.json")
    names = ["method", "seed", "epochs", "accuracy", "NLL", "ECE", "minutes", "threads"]
    lines = [
        [
            f"`{row['method']}`",
            str(row["seed"]),
            str(row["epochs"]),
            f"{100 * row['accuracy']:.1f} %",
            *(f"{row[metric]:.3f}" for metric in ("nll", "ece")),
            f"{row['minutes']:.1f}",
            str(measured["config"]["threads"]),
        ]
        for row in measured["sections"]["small_network"]
    ]
    return f"{table(names, lines)}\n\n{provenance(measured, 'lastlayer')}"
