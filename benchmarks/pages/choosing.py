"""Tables of docs/choosing.md."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import provenance, record, table


def about() -> str:
    """What was trained on what, and where and when."""
    measured = record(FILE)
    config = measured["config"]
    sizes = ", ".join(map(str, config["bound_sizes"]))
    lines = [
        f"- Regression: {config['wave_size']} points of a sine with a gap in the middle and noise "
        f"of standard deviation {config['wave_noise']}, two layers of {config['width']} units.",
        f"- Heads: {config['moons_size']} points around two half-moons, and a ring of radius "
        f"{config['ring_radius']:g} around them.",
        f"- Bounds: {sizes} points around wider half-moons, {config['width']} random features.",
        f"- Numbers are means over {config['num_seeds']} seeds, each with its own data and "
        f"network, {config['test_size']} test points each; ± is one standard error. "
        "Pictures show the first seed.",
    ]
    return "\n".join([*lines, "", provenance(measured)])


FILE = "choosing.json"
# Columns: a heading, and where its numbers are in the record.
LOSS, NLL = ("−ELBO/T", "loss"), ("test NLL", "nll")
DIFFERENCE = ("against the default", "nll_difference")
COVERAGE = ("90 % intervals cover", "coverage_0.9")
NOISE, GAP = ("noise stddev", "noise_stddev"), ("stddev of the mean in the gap", "gap_stddev")


def choices(name: str, first: str, *columns: tuple[str, str], only: str = "") -> str:
    """Rows of a section whose choice begins in some way."""
    lines = []
    for row in record(FILE)["sections"][name]:
        if row["choice"].startswith(only):
            choice = row["choice"].removeprefix(f"{only} = ").removeprefix("noise ")
            lines.append([f"`{choice}`", *(with_error(row, key) for _, key in columns)])
    return table([first, *(heading for heading, _ in columns)], lines)


def with_error(row: dict[str, Any], key: str) -> str:
    """A number, and its standard error if there is one; as many digits as that deserves."""
    value, error = row[key], row.get(f"{key}_error")
    if error is None:
        return f"{value:.3f}".replace("-", "−")
    if error == 0:  # compared with itself
        return "–"
    sign = "+" if "difference" in key else ""
    return f"{value:{sign}.3f} ± {error:.3f}".replace("-", "−")


def bounds() -> str:
    """The objective and two metrics by bound, and the difference of each pair of models."""
    metrics, sides = (LOSS, NLL, ("test ECE", "ece")), ("jensen", "tilted", "difference")
    rows = record(FILE)["sections"]["bound"]
    lines = [
        [title, str(row["num_data"]), *(with_error(row, side) for side in sides)]
        for title, name in metrics
        for row in rows
        if row["metric"] == name
    ]
    return table(["", "T", "jensen", "tilted", "tilted − jensen"], lines)


def classifiers() -> str:
    rows = record(FILE)["sections"]["heads"]
    keys = ("accuracy", "nll", "brier", "ece")
    lines = [[row["head"], *(f"{row[key]:.3f}" for key in keys)] for row in rows]
    return table(["head", "accuracy", "test NLL", "Brier score", "ECE"], lines)


def detection() -> str:
    rows = record(FILE)["sections"]["scores"]
    keys = ("auroc", "fpr95")
    lines = [
        [row["head"], f"`{row['score']}`", *(f"{row[key]:.3f}" for key in keys)] for row in rows
    ]
    return table(["head", "score", "AUROC", "FPR95"], lines)
