"""The page of Bayesian optimisation, from the records of runs.

Deterministic: the same records give the same page.
"""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ..harness import provenance, records, sections
from ..harness.statistics import Runs, change
from ..harness.tables import bullets, table
from .figure import draw
from .run import EXPERIMENT
from .tasks import AREA, FINAL, PROBLEMS

INTRODUCTION = """\
# Bayesian optimisation

Written by `python -m experiments report` from the records in this folder, one line per run; do not
edit. `python -m experiments bayesopt` makes the records, and runs only what has none."""

READING = """\
Mean ± standard error over trials, larger is better: the best value found, or the hypervolume for
Branin–Currin and DTLZ1. **Bold** are the best and those less than one standard error (the best's)
behind it."""

SETTINGS = """\
Tasks and budgets are published ones (Brunzema et al., 2025), with inputs in the unit cube and the
same random initial points for all methods. The networks of the network draw have two hidden layers
of 50 tanh, a new one for each trial. In pest control a category is one of five parts of an input;
every method sees the middle of the part. All methods choose a batch by Thompson sampling: as many
drawn functions, each maximised by L-BFGS-B from the 4 best of 1,024 candidates, half of them near
the best points so far. With two objectives the drawn functions are made one by augmented Chebyshev
scalarisation with random weights, each objective divided by its range on the front so far, and the
best points are that front, for all methods. Values are as BoTorch has the functions, negated."""

TIMING = """\
Processor seconds of one round (fit, draw and maximise ten functions) on Hartmann-6, one thread, by
the number of observations: `python -m experiments.bayesopt.timing`."""

CHOICE = """\
Defaults were chosen by the log-likelihood of held-out values, on functions that are none of the
tasks: `python -m experiments.bayesopt.choice`. Mean over {functions} and {seeds}, by the number of
observations, and the mean of all; variants that were not measured on all of them are left out."""

PROMISES = """\
Mean differences of what is reached at the end, ours less the other's, over trials that both have,
with the standard error of these differences; the same trial has the same initial points. "Clearly"
is by more than two standard errors."""

OBJECTIVES = ("variant", "function", "num_points", "seed")
TOGETHER = """\
With several outputs, one model whose outputs share features, or a model for each output: mean
log-likelihood of held-out values over outputs and seeds, on functions that are none of the tasks,
`python -m experiments.bayesopt.objectives`. In the tasks ours has a model for each objective
([decision 38](../../docs/decisions/0038-objectives-apart.md))."""


def summary(runs: Runs) -> list[str]:
    """How ours compares with the Gaussian process and the community's model, task by task."""
    lines = []
    for other in ("gp", "vbll"):
        words = []
        for task in runs.columns:
            ours, theirs = (runs.values(method, task, FINAL.name) for method in ("ours", other))
            if len(ours) and len(theirs):
                words.append(
                    f"{PROBLEMS[task].title} {fmean(ours):.3f} and {fmean(theirs):.3f} "
                    f"({len(ours)} and {len(theirs)} trials)"
                )
        if words:
            lines.append(f"Ours and {runs.methods[other].label}, at the end: {'; '.join(words)}.")
    return lines


class Target(NamedTuple):
    """What was promised of ours beside another method, on some tasks.

    Attributes:
        text: the promise.
        other: the method.
        tasks: on which.
        margin: standard errors by which the mean difference has to be above zero.
    """

    text: str
    other: str
    tasks: tuple[str, ...]
    margin: float


STANDARD = ("branin", "hartmann", "ackley", "branin_currin", "dtlz1")
TARGETS = (
    Target("At or above SingleTaskGP within one standard error", "gp", STANDARD, -1.0),
    Target("Clearly above SingleTaskGP", "gp", ("network", "pests"), 2.0),
    Target("Above BoTorch's VBLL", "vbll", tuple(PROBLEMS), 0.0),
)


def verdicts(runs: Runs) -> list[str]:
    """Each target task by task: whether it was met, and the mean difference of paired trials."""
    lines = []
    for target in TARGETS:
        words = []
        for task in target.tasks:
            theirs, ours = (runs.by_seed(name, task, FINAL.name) for name in (target.other, "ours"))
            gain = change(theirs, ours)
            if gain is None:
                words.append(f"{PROBLEMS[task].title} not measured")
                continue
            error = 0.0 if math.isnan(gain.stderr) else gain.stderr  # of one trial
            met = "met" if gain.mean >= target.margin * error else "**missed**"
            trials = len(set(theirs) & set(ours))
            spread = f"{gain.mean:+.3f} ± {gain.stderr:.3f}" if trials > 1 else f"{gain.mean:+.3f}"
            words.append(f"{PROBLEMS[task].title} {met} ({spread}, {trials} of 5 trials)")
        lines.append(f"{target.text}: {'; '.join(words)}.")
    return lines


def faster(seconds: dict[str, dict[int, float]]) -> str:
    """Whether rounds are faster than those of the Gaussian process from 500 observations on."""
    ours, theirs = seconds.get("ours", {}), seconds.get("gp", {})
    sizes = [size for size in sorted(set(ours) & set(theirs)) if size >= 500]
    met = "met" if all(ours[size] < theirs[size] for size in sizes) else "**missed**"
    words = [f"{ours[n]:.2f} against {theirs[n]:.2f} s at {n:,}" for n in sizes]
    return f"Faster per round from 500 observations on: {met} ({', '.join(words)})."


def best_pests(results: Path) -> str:
    """How much there is to win in pest control."""
    found = records.read(results / "bayesopt" / "pests-optimum.jsonl", ("seed",))
    if not found:
        return ""
    values = [-record["metrics"]["lowest"] for record in found]
    return (
        f"In pest control {len(values)} local searches ended at {min(values):.2f} to "
        f"{max(values):.2f} (`python -m experiments.bayesopt.pests`): nothing that comes this "
        "close to it leaves room to be clearly above."
    )


def timing(results: Path) -> str:
    """Seconds of a round by the number of observations."""
    found = records.read(results / "bayesopt" / "timing.jsonl", ("method", "num_points"))
    if not found:
        return ""
    seconds: dict[str, dict[int, float]] = defaultdict(dict)
    for record in found:
        config = record["config"]
        seconds[config["method"]][config["num_points"]] = record["metrics"]["processor_seconds"]
    sizes = sorted({size for row in seconds.values() for size in row})
    entries = EXPERIMENT.entries
    rows = [
        [entries[name].title, *(f"{row[n]:.2f}" if n in row else "–" for n in sizes)]
        for name, row in seconds.items()
    ]
    text = table(["", *(f"{size:,}" for size in sizes)], rows)
    return f"## Time of a round\n\n{TIMING}\n\n{text}\n\n{faster(seconds)}"


def choice(results: Path) -> str:
    """Log-likelihoods of the variants among which defaults were chosen."""
    identity = ("variant", "function", "num_points", "seed")
    found = records.read(results / "bayesopt" / "choice.jsonl", identity)
    values: dict[str, dict[tuple[str, int, int], float]] = defaultdict(dict)
    for record in found:
        variant, *where = (record["config"][name] for name in identity)
        values[variant][where[0], where[1], where[2]] = record["metrics"]["log_likelihood"]
    first = {key for row in values.values() for key in row if key[-1] == 0}
    whole = {name: row for name, row in values.items() if first <= row.keys()}
    if not whole:
        return ""
    common = sorted(set.intersection(*(set(row) for row in whole.values())))
    sizes = sorted({size for _, size, _ in common})
    lines = {}
    for name, row in whole.items():
        columns = [[row[key] for key in common if key[1] == size] for size in sizes]
        lines[name] = [*map(fmean, columns), fmean(row[key] for key in common)]
    order = sorted(lines, key=lambda name: -lines[name][-1])
    rows = [[name, *(f"{value:.3f}" for value in lines[name])] for name in order]
    functions, seeds = ({key[at] for key in common} for at in (0, 2))
    about = CHOICE.format(
        functions=f"{len(functions)} function{'s' * (len(functions) > 1)}",
        seeds=f"{len(seeds)} seed{'s' * (len(seeds) > 1)}",
    )
    return f"## Choice of defaults\n\n{about}\n\n{table(['', *map(str, sizes), 'all'], rows)}"


def objectives(results: Path) -> str:
    """Log-likelihoods of several outputs, on shared features and apart."""
    found = records.read(results / "bayesopt" / "objectives.jsonl", OBJECTIVES)
    values: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in found:
        variant, function, size, _ = (record["config"][name] for name in OBJECTIVES)
        values[function, size][variant].append(record["metrics"]["log_likelihood"])
    if not values:
        return ""
    variants = list(dict.fromkeys(record["config"]["variant"] for record in found))
    rows = [
        [name, str(size), *(f"{fmean(row[v]):.3f}" if row[v] else "–" for v in variants)]
        for (name, size), row in values.items()
    ]
    text = table(["", "observations", *variants], rows)
    return f"## Several objectives\n\n{TOGETHER}\n\n{text}"


def page(runs: Runs, results: Path) -> str:
    """The whole page, Markdown."""
    methods = [method for method in runs.methods if runs.has(method)]
    lines = summary(runs)
    parts = [
        INTRODUCTION,
        bullets(lines) if lines else "",
        f"## Targets\n\n{PROMISES}\n\n{bullets(verdicts(runs))}",
        best_pests(results),
        "![Best value or hypervolume by the number of evaluations](curves.png)\n\nMeans over "
        "trials; bands are one standard error.",
        READING,
        f"## At the end\n\n{sections.metric_table(runs, methods, FINAL)}",
        f"## Mean over rounds\n\n{sections.metric_table(runs, methods, AREA)}",
        timing(results),
        f"## Settings\n\n{SETTINGS}\n\n{provenance.settings(runs, EXPERIMENT)}",
        choice(results),
        objectives(results),
        f"## Time\n\n{provenance.times(runs, {'all methods': methods})}",
        f"## Missing\n\n{provenance.missing(runs, EXPERIMENT)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(runs: Runs) -> str:
    """A line for the index."""
    lines = summary(runs)
    return lines[0] if lines else "surrogates on published tasks of Bayesian optimisation."


def write(results: Path) -> str | None:
    """Write the page and its figure; a headline for the index, or None without records."""
    return sections.publish(EXPERIMENT, results, lambda runs: page(runs, results), headline, draw)
