"""The page of the sentiment experiment, from the records of runs.

Deterministic: the same records give the same page.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..datasets import imdb
from ..harness import provenance, sections
from ..harness.statistics import Runs
from ..harness.tables import bullets, table
from . import claims, tuning
from .figure import draw
from .methods import METHODS, OURS, PAPER, SEEDS, SIZES, TUNED
from .run import EXPERIMENT
from .task import DEPTH, METRICS, WIDTH

INTRODUCTION = """\
# Sentiment of film reviews

Written by `python -m experiments report` from the records in this folder, one line per run; do not
edit. `python -m experiments text` makes the records, and runs only what has none.

IMDB: 25,000 reviews to train and 25,000 to test; the paper's section 5.3 with another language
model. Its features are OPT-175B's last layer at the last token, which few can compute; here they
are those of the sentence encoder all-MiniLM-L6-v2 (384 numbers, 256 tokens), so figures are not the
paper's, which prints none. `python -m experiments text --embed --model NAME` takes a causal model
as the paper did, and `--features` runs the experiment on its features."""

READING = """\
Mean ± standard error over seeds, on all 25,000 test reviews; columns are numbers of training
reviews. Each seed draws its own reviews, but at 25,000, where all are taken and seeds differ in
their initial weights alone: standard errors there do not hold the luck of the data. **Bold** are
the best and those less than one standard error (the best's) behind it. ECE has 15 bins."""

FIGURE = """\
Means; bands are one standard deviation over seeds, as in the paper's figure."""

NUM_DATA = re.compile(r"num_data=\S+, ")  # differs between sizes

CAVEATS = """\
- Reviewers hold the copyright of their texts, which are not part of this repository.
- 123 texts are in both the training and the test reviews, as in the original.
- Training and test reviews are of different films. Reviews held out for tuning are training
  reviews, of films that are in training sets too, and so easier than test reviews."""


def settings() -> str:
    """What the paper says, and how the rest was filled."""
    return (
        f"As in the paper: {DEPTH} linear layers before the head and AdamW, for every network; "
        "learning rate and weight decay are tuned at 10 and at 25,000 reviews. It does not say "
        f"how: here by the NLL of {imdb.NUM_HELD_OUT:,} training reviews that are in no "
        "training set, with the record in [tuning.jsonl](tuning.jsonl), and for MLP, in a row of "
        "its own, by the accuracy on them, where that chose another; 100 reviews have the settings "
        "of 10, and 1,000 those of 25,000. It "
        f"names neither the width of the layers (here {WIDTH}, leaky ReLU) nor the number of "
        "epochs, the batch size and the prior. D-VBLL and G-VBLL have the prior N(0, I) and "
        "inverse-Wishart(1, 1) of its regression. Ours are what a user gets who replaces MLP's "
        "last layer by a discriminative head and trains as MLP does (`fit`), gives the trained MLP "
        "to `posttrain`, or lets `crossfit` find the length of training (a quarter to four times "
        "MLP's, along a cosine), the weight decay (its two) and a temperature by five-fold "
        "cross-validation, without choosing anything else. Temperature scaling takes the "
        "temperature from out-of-fold predictions; Laplace (laplace-torch) tunes its prior by the "
        "marginal likelihood; `vbll` is the authors' package with its own prior, in D-VBLL's "
        f"training. {max(SEEDS.values())} seeds, and {min(SEEDS.values())} at 25,000; logistic "
        "regression, which has no initial weights, is fitted once there."
    )


def defaults(runs: Runs) -> str:
    """The heads that ours were when they ran, as their records say."""
    found = {
        f"{runs.methods[method].label}: `{NUM_DATA.sub('', run['metrics']['head'])}`"
        for method in OURS
        for column in runs.columns
        for run in runs.records(method, column)
        if "head" in run["metrics"]
    }
    return f"Ours when they ran:\n\n{bullets(sorted(found))}"


def tuned() -> str:
    """What was chosen."""
    rows = []
    for method, chosen in TUNED.items():
        cells = [f"{chosen[at][0]:g}, {chosen[at][1]:g}" for at in tuning.SEEDS]
        rows.append([METHODS[method].title, *cells])
    header = ["learning rate, weight decay", *(f"{SIZES[at]:,}" for at in tuning.SEEDS)]
    tried = (
        f"Tried: learning rates {', '.join(f'{rate:g}' for rate in tuning.LEARNING_RATES)}; weight "
        f"decays {', '.join(f'{decay:g}' for decay in tuning.WEIGHT_DECAYS)}."
    )
    return f"{table(header, rows)}\n\n{tried}"


def page(runs: Runs) -> str:
    """The whole page, Markdown."""
    methods = [method for method in runs.main if runs.has(method)]
    tables = [
        f"## {metric.label[:1].upper()}{metric.label[1:]}\n\n"
        + sections.metric_table(runs, methods, metric)
        for metric in METRICS
    ]
    peers = [name for name in METHODS if name not in (*PAPER, *OURS)]
    groups = {"the paper's methods": PAPER, "ours": OURS, "others": peers}
    parts = [
        INTRODUCTION,
        f"## Which of the paper's claims hold\n\n{claims.summary(runs)}",
        f"![Accuracy, NLL and ECE by the number of training reviews](metrics.png)\n\n{FIGURE}",
        READING,
        *tables,
        f"## Changes from MLP\n\n{claims.changes(runs)}",
        f"## Settings\n\n{settings()}\n\n{tuned()}\n\n{defaults(runs)}",
        provenance.settings(runs, EXPERIMENT),
        f"## Time\n\n{provenance.times(runs, groups)}",
        f"## About the data\n\n{CAVEATS}",
        f"## Missing\n\n{provenance.missing(runs, EXPERIMENT)}",
    ]
    return "\n\n".join(parts) + "\n"


def write(results: Path) -> str | None:
    """Write the page and its figure; a headline for the index, or None without records."""
    runs = Runs.load(EXPERIMENT, results)
    if not runs.by_cell:
        return None
    folder = results / EXPERIMENT.name
    # Without the version of matplotlib, the same records give the same file for longer.
    draw(runs).savefig(folder / "metrics.png", metadata={"Software": None})
    (folder / "README.md").write_text(page(runs), encoding="utf-8")
    return claims.headline(runs)
