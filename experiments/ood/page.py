"""The page of out-of-distribution scores: the same records give the same page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lastlayer.ood import Comparison
from lastlayer.plots import ood_comparison

from ..harness import records
from ..harness.tables import BLANK, bullets, table
from .problems import PROBLEMS, SPLITS, TEST, TITLES
from .run import path

RECOMMENDED, NEIGHBORS = "FeatureDensity", "NearestNeighbors"
VARIANT = "("  # in the name of a score with other options than the defaults

INTRODUCTION = """\
# Out-of-distribution scores

Written by `python -m experiments report` from the records in this folder; do not edit.
`python -m experiments ood` makes the records, and runs only what has none.

Scores of features are fitted to 4,000 training examples with their default options. Logits are
those of a linear layer on the same features, with the posterior that `posttrain` gives it. Other
data sets against held-out in-distribution examples, by AUROC (and FPR95 in brackets), out as the
positive class, as in OpenOOD; one set of training examples, and so no standard errors. Rows are in
the order of the mean AUROC. **Bold** is the best of a column.

Defaults were chosen on the validation split: training images and reviews that nothing was fitted
to. Of SVHN, which has no training images here, it has other test images than the test split."""

DATA = (
    "Images: CIFAR-10 against SVHN (far) and CIFAR-100 (near), by EfficientNet-lite0 with the "
    "weights of ImageNet, images enlarged to 160 pixels, in bfloat16. SVHN's digits were cut anew "
    "from the original images; single pixels differ from the usual files.",
    "Texts: film reviews (IMDB) against paragraphs of Python's reference (far) and reviews with "
    "their words in random order (near), by the sentence encoder all-MiniLM-L6-v2.",
    "Trained network: a hidden layer of 128 leaky ReLU units between those features and a "
    "discriminative head, trained on the sentiment of the same 4,000 reviews.",
)


LABELS = """\
How well the labels of the in-distribution test examples are predicted by a linear layer on the
same features, fitted to convergence; at the temperature that a fifth of the training examples
choose for a layer that was fitted without them; and by what `posttrain` makes of the layer, with
its defaults and no other data."""


def metrics(
    results: Path, problem: str, split: str, what: str = "metrics"
) -> dict[str, Any] | None:
    """By score and data set, or "labels" by model, if there is a record."""
    for record in records.read(path(results, problem), ("split",)):
        if record["config"]["split"] == split:
            found: dict[str, Any] | None = record.get(what)
            return found
    return None


def labels_table(results: Path) -> str:
    """How well labels of test examples are predicted, a row for each problem and model."""
    rows = []
    for problem in PROBLEMS:
        for name, found in (metrics(results, problem, TEST, "labels") or {}).items():
            shown = [f"{found['accuracy']:.1%}", f"{found['nll']:.3f}", f"{found['ece']:.3f}"]
            rows.append([problem, name, *shown])
    return table(["problem", "model", "accuracy", "NLL", "ECE"], rows) if rows else BLANK


def comparison(found: dict[str, Any], variants: bool) -> Comparison:
    """The metrics of scores, with variants of them or without."""
    kept = {name: value for name, value in found.items() if variants or VARIANT not in name}
    return Comparison({}, {}, kept, {})


def scores_table(found: dict[str, Any], variants: bool = True) -> str:
    """A row for each score, the best first."""
    compared = comparison(found, variants)
    names = list(next(iter(found.values())))
    best = {name: max(row[name]["auroc"] for row in compared.metrics.values()) for name in names}
    rows = []
    for score in compared.ranking():
        cells = []
        for name in names:
            cell = compared.metrics[score][name]
            text = f"{cell['auroc']:.3f} ({cell['fpr95']:.2f})"
            cells.append(f"**{text}**" if cell["auroc"] == best[name] else text)
        rows.append([f"`{score}`", *cells])
    return table(["score", *names], rows)


def speed(results: Path) -> str:
    """The speed of the nearest neighbours."""
    found = records.read(path(results, "speed"), ("split",))
    if not found:
        return BLANK
    config, rates = found[-1]["config"], found[-1]["metrics"]
    shown = ", ".join(f"{rate:,.0f} with references in {name}" for name, rate in rates.items())
    return (
        f"Queries per second of processor time on one thread, against {config['references']:,} "
        f"references of {config['num_features']:,} features: {shown}."
    )


def draw(results: Path) -> Figure:
    """All scores of all problems on the test split."""
    found = {name: metrics(results, name, TEST) for name in PROBLEMS}
    shown = {name: value for name, value in found.items() if value is not None}
    figure = Figure(figsize=(5.5 * len(shown), 4.6), dpi=120, layout="constrained")
    for ax, (name, value) in zip(
        figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True
    ):
        ood_comparison(comparison(value, variants=False), ax=ax)
        ax.set_title(TITLES[name], loc="left", fontsize=10, pad=24)
    return figure


def page(results: Path) -> str:
    """The whole page, Markdown."""
    parts = [INTRODUCTION, bullets(DATA), "![AUROC of every score](scores.png)"]
    for problem in PROBLEMS:
        parts.append(f"## {TITLES[problem]}")
        for split in reversed(SPLITS):
            found = metrics(results, problem, split)
            parts.append(f"### {split.capitalize()} split")
            parts.append("Not measured." if found is None else scores_table(found))
    parts.append(f"## Labels\n\n{LABELS}\n\n{labels_table(results)}")
    parts.append(f"## Speed of nearest neighbours\n\n{speed(results)}")
    return "\n\n".join(parts) + "\n"


def headline(results: Path) -> str:
    """The recommended score beside the nearest neighbours, on test data."""
    parts = []
    for problem in PROBLEMS:
        found = metrics(results, problem, TEST)
        if found is not None:
            pairs = (
                f"{name} {found[RECOMMENDED][name]['auroc']:.3f} "
                f"(kNN {found[NEIGHBORS][name]['auroc']:.3f})"
                for name in found[RECOMMENDED]
            )
            parts.append(f"{problem}: " + ", ".join(pairs))
    return f"AUROC of `{RECOMMENDED}` on {'; '.join(parts)}."


def write(results: Path) -> str | None:
    """Write the page and its figure; a headline for the index, or None without records."""
    if not any(metrics(results, problem, TEST) for problem in PROBLEMS):
        return None
    draw(results).savefig(results / "ood" / "scores.png", metadata={"Software": None})
    (results / "ood" / "README.md").write_text(page(results), encoding="utf-8")
    return headline(results)
