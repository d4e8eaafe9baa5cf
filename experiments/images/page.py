"""The page of the image experiment, from the records of runs.

Deterministic: the same records give the same page.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..harness import provenance, sections
from ..harness.statistics import Runs
from ..harness.tables import BLANK, bullets, printed_digits, show, table
from . import ablation, claims, timing
from .methods import DATASETS, LONGER, NUM_TRAIN, PAPER, SMALL, WIDE
from .published import PUBLISHED
from .run import EXPERIMENT, experiment
from .task import HELD_OUT, METRICS

INTRODUCTION = """\
# Images

Written by `python -m experiments report` from the records in this folder, one line per run; do not
edit. `python -m experiments images` makes the records, and runs only what has none.

The paper's section 5.2: CIFAR-10 and CIFAR-100, and how well a score of each method tells test
images from those of SVHN (far) and of the other CIFAR (near). The paper's network is WRN-28-10,
trained for 300 epochs, which takes GPUs: `--backbone wrn-28-10` runs it, under `torchrun` if need
be, and `--estimate` tells what it would take. The tables here are of a small network that trains in
minutes on two processor cores, so figures are not the paper's: what can be compared is the order of
the methods."""

READING = """\
Mean ± standard error over seeds, on all test images; accuracy in percent, ECE with 15 bins.
**Bold** are the best and those less than one standard error (the best's) behind it, among
single-pass methods and, unless one of those is better, among the others: the paper's way. G-VBLL +
MAP predicts labels as G-VBLL does."""

ORDER = """\
The place of each method by its mean, measured \\| paper, among those that have both; the last line
is the correlation of the places."""

SCORES = """\
Scores of inputs that do not belong, as the paper has them: one less the probability of the most
probable class, but for G-VBLL, DNN + G-VBLL and G-VBLL BBB the normalised density of the features
that the head has learned, for G-VBLL + MAP that with a MAP covariance for each class, and for SNGP,
where the paper does not say, the uncertainty of Dempster and Shafer, as in its publication. The
density of G-VBLL + MAP is relative to that under the prior N(0, I) of class means. "s learned" has
N(0, sI) instead, with the s that makes the class means likeliest (decision 40)."""

CAVEATS = """\
- SVHN: its images of 32 × 32 pixels were rebuilt from the official full-number images and boxes
  (square window, edge replication, bicubic), not taken from the original `test_32x32.mat`;
  statistics agree, single pixels differ slightly. 10,000 test images at random.
- CIFAR-100: original pixels, fine labels in alphabetical order, the order of the images permuted,
  and 20,000 training images, 200 of each class, where the original has 50,000, with 14 exact
  duplicates among them.
- Where the packed files are not there, `--download` fetches the originals, and all 50,000 training
  images of CIFAR-100 are used."""


def settings() -> str:
    """How networks were trained, and what the paper leaves open."""
    small = (
        f"The small network has a frozen whitening of patches and six convolutions (64, 128 and "
        f"128 channels), 128 features. All networks of a data set are trained alike: "
        f"{SMALL['epochs']['cifar10']} epochs on CIFAR-10 and {SMALL['epochs']['cifar100']} on "
        f"CIFAR-100, batches of {SMALL['batch_size']}, Nesterov's momentum {SMALL['momentum']:g}, "
        f"a learning rate that rises to {SMALL['learning_rate']:g} and falls to zero, weight decay "
        f"{SMALL['weight_decay']:g} of all but heads, gradients clipped at {SMALL['clip']:g}, "
        "bfloat16 where torch's autocast has it, random flips and shifts by two pixels. This is a "
        "published recipe without its label smoothing and its averages over shifted images, and "
        "was not tuned for any method."
    )
    wide = (
        f"The paper's network: {WIDE['epochs']} epochs ({LONGER['epochs']} for BBB), batches of "
        f"{WIDE['batch_size']}, momentum {WIDE['momentum']:g} without Nesterov, learning rate "
        f"{WIDE['learning_rate']:g} to zero along a cosine, weight decay {WIDE['weight_decay']:g}, "
        f"clipping at {WIDE['clip']:g}, flips and shifts by four pixels."
    )
    held_out = (
        f"{HELD_OUT:.0%} of the training images, the same for every seed, are held out of all "
        f"training ({NUM_TRAIN['cifar10']:,} and {NUM_TRAIN['cifar100']:,} remain). The "
        "temperature of temperature scaling, the mean-field factor of SNGP, and the prior of ours "
        "are chosen by their NLL; other methods do not see them. DNN + `posttrain` has these "
        "images as validation data, another temperature if each half of them says so of the "
        "other, and the generalised entropy (GEN) as its score. G-VBLL + `posttrain` is the same "
        "after G-VBLL's network, whose linear logits take the place of DNN's layer. Ours is "
        "whichever of these two networks has the lower NLL on the held-out images."
    )
    heads = (
        "D-VBLL and G-VBLL have the prior N(0, I) and inverse-Wishart(1, 1) and a KL weight of 1. "
        "BBB has a variational last layer with the prior N(0, 0.01), KL weight 50 and ten draws; "
        "D-VBLL BBB and G-VBLL BBB have one such layer between features and head, KL weight 0.5. "
        "DNN + D-VBLL is the optimum of D-VBLL's objective on DNN's features, DNN + G-VBLL is "
        "trained on them by gradients. Laplace (laplace-torch, Kronecker-factored) tunes its prior "
        "by the marginal likelihood. Dropout is before every layer but the first, with ten draws; "
        "an ensemble has four networks of DNN's, those of consecutive seeds, so that "
        "ensembles share members and their standard errors are too small."
    )
    return "\n\n".join([small, held_out, heads, SCORES, wide])


def compared(runs: Runs, dataset: str, methods: Iterable[str]) -> str:
    """Measured | paper, for the paper's own network."""
    rows = []
    for method in methods:
        cells = []
        for metric in METRICS:
            found = runs.estimate(method, dataset, metric.name)
            mean = found and type(found)(*(metric.scale * value for value in found))
            theirs = PUBLISHED.cells.get((method, dataset, metric.name))
            paper = BLANK
            if theirs is not None:
                suspect = (method, dataset, metric.name) in PUBLISHED.suspect
                paper = show(theirs, printed_digits(theirs, metric.digits)) + "†" * suspect
            cells.append(f"{show(mean, metric.digits)} \\| {paper}")
        rows.append([runs.methods[method].label, *cells])
    return table(["", *(metric.label for metric in METRICS)], rows)


def tables(runs: Runs) -> list[str]:
    """A section for each data set."""
    methods = [method for method in runs.main if runs.has(method)]
    return [
        f"## {claims.TITLES[dataset]}\n\n"
        + sections.metrics_table(runs, methods, dataset, METRICS)
        + f"\n\n{ORDER}\n\n"
        + sections.rank_table(runs, dataset, METRICS, PUBLISHED)
        for dataset in DATASETS
    ]


def wide_tables(results: Path) -> list[str]:
    """The same with the paper's network, if it was run."""
    runs = Runs.load(experiment("wrn-28-10"), results)
    methods = [method for method in runs.main if runs.has(method)]
    if not methods:
        return []
    return [
        f"## {claims.TITLES[dataset]}, WRN-28-10\n\nMeasured \\| paper.\n\n"
        + compared(runs, dataset, methods)
        for dataset in DATASETS
    ]


def page(runs: Runs, results: Path) -> str:
    """The whole page, Markdown."""
    groups = {
        "the paper's methods": [name for name in runs.methods if name in PAPER],
        "others": [name for name in runs.methods if name not in PAPER],
    }
    suspects = [
        f"{claims.TITLES[dataset]}, {PAPER[method]}, {metric.upper()}: {why}"
        for (method, dataset, metric), why in PUBLISHED.suspect.items()
    ]
    parts = [
        INTRODUCTION,
        f"## Which of the paper's claims hold\n\n{claims.summary(runs)}",
        f"## Ours\n\n{claims.targets(runs)}",
        f"## Reading the tables\n\n{READING}",
        *tables(runs),
        *wide_tables(results),
        f"## KL weights\n\n{_ablation(results)}",
        f"## Time of a training step\n\n{_timing(results)}",
        f"## Settings\n\n{settings()}",
        provenance.settings(runs, EXPERIMENT),
        f"## Time\n\n{provenance.times(runs, groups)}",
        f"## About the data\n\n{CAVEATS}",
        f"## Suspected misprints of the paper\n\n{bullets(suspects)}",
        f"## Missing\n\n{provenance.missing(runs, EXPERIMENT)}",
    ]
    return "\n\n".join(parts) + "\n"


def _ablation(results: Path) -> str:
    about = (
        "NLL of D-VBLL on CIFAR-10 by the weights of the divergences of the last layer and of a "
        "variational layer before it; measured \\| paper, whose network is another, and which "
        f"trained to the end: here {ablation.EPOCHS['small']} epochs, one seed."
    )
    return f"{about}\n\n{ablation.section(results)}"


def _timing(results: Path) -> str:
    about = (
        "Processor seconds of a step on CIFAR-10, the median, and the median of the ratios to a "
        f"step of DNN in the same round, on one core; {timing.BATCH['small']} images with the "
        f"small network, {timing.BATCH['wrn-28-10']} with WRN-28-10, where the paper has 128: a "
        "head's own time does not grow with the batch as the network's does, so it counts for more "
        "here."
    )
    return f"{about}\n\n{timing.section(results)}"


def write(results: Path) -> str | None:
    """Write the page; a headline for the index, or None without records."""
    runs = Runs.load(EXPERIMENT, results)
    if not runs.by_cell:
        return None
    (results / EXPERIMENT.name / "README.md").write_text(page(runs, results), encoding="utf-8")
    return claims.headline(runs)
