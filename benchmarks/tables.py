"""Write the tables of README.md and docs/ from the records in results/.

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; everything between is
replaced. `--check` changes nothing and fails if a table is not what its record says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

# Whoever starts this file, `python benchmarks/tables.py` or `python -m benchmarks.tables`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.markdown import ROOT
from benchmarks.pages import (
    choosing,
    classifiers,
    estimators,
    frameworks,
    noise,
    ood,
    performance,
    readme,
    training,
)
from benchmarks.pages.choosing import COVERAGE, DIFFERENCE, GAP, LOSS, NLL, NOISE, choices
from benchmarks.pages.performance import section

COVARIANCES = ("covariance", LOSS, NLL, DIFFERENCE, COVERAGE, NOISE, GAP)
Tables = dict[str, Callable[[], str]]
TABLES: dict[str, Tables] = {
    "README.md": {"uci": readme.uci},
    "docs/performance.md": {
        "heads": performance.targets,
        "targets": partial(section, "targets"),
        "memory": partial(section, "memory"),
        "scaling": partial(section, "scaling"),
        "backbone": partial(section, "backbone"),
        "cancellation": partial(section, "cancellation"),
        "grid": performance.grid,
        "predict": performance.predict,
        "calls": partial(section, "times", "predicting.json"),
        "large": partial(section, "memory", "predicting.json"),
        "lost": partial(section, "nll", "predicting.json"),
        "observed": partial(section, "observed", "observed.json"),
        "seeds": training.seeds,
        "tracing": training.tracing,
        "allocation": training.allocation,
        "posttrain": training.passes,
        "times": training.times,
        "profile": partial(section, "profile", "profile.json"),
        "compiled": partial(section, "compiled", "compiled.json"),
        "noise": noise.speed,
    },
    "docs/choosing.md": {
        "about": choosing.about,
        "classifiers": choosing.classifiers,
        "detection": choosing.detection,
        "scores": ood.scores,
        "covariance": partial(choices, "covariance", *COVARIANCES),
        "together": partial(choices, "together", *COVARIANCES),
        "bounds": choosing.bounds,
        "varying": noise.varying,
        "outliers": noise.outliers,
        "labels": noise.labels,
        "variance": partial(
            choices, "prior", "`variance`", LOSS, NLL, DIFFERENCE, NOISE, GAP, only="variance"
        ),
        "kl_weight": partial(
            choices, "prior", "`kl_weight`", NLL, DIFFERENCE, COVERAGE, GAP, only="kl_weight"
        ),
        "noise": partial(
            choices, "prior", "prior of the noise", NLL, DIFFERENCE, COVERAGE, NOISE, only="noise"
        ),
    },
    "docs/tables.md": {
        "nll": estimators.nll,
        "times": estimators.times,
        "classifiers": classifiers.nll,
        **{metric: partial(estimators.by_metric, metric) for metric in estimators.METRICS},
    },
    "docs/deciding.md": {"selecting": performance.selecting},
    "docs/frameworks.md": {"encoder": frameworks.encoder},
    "docs/reproducing.md": {"small_network": training.small_network},
    "docs/scaling.md": {"streaming": frameworks.streaming},
    "docs/pretrained.md": {"reviews": training.reviews},
    "docs/decisions/0005-quadrature-for-the-mean-softmax.md": {"softmax": performance.softmax},
    "docs/decisions/0016-prior-of-a-discriminative-head.md": {"priors": training.priors},
    "docs/decisions/0020-prior-after-training.md": {
        "posttrained": partial(training.posttrained, "posttrained.json"),
        "unseen": partial(training.posttrained, "posttrained-unseen.json"),
    },
    "docs/decisions/0027-prior-of-a-temperature.md": {"temperatures": training.temperatures},
    "docs/decisions/0022-prior-of-the-log-noise.md": {"priors": noise.priors},
    "docs/decisions/0046-labels-that-are-wrong-in-some-regions.md": {"priors": noise.label_priors},
    "docs/decisions/0023-density-of-unit-length.md": {"variants": ood.variants},
    "docs/decisions/0018-generative-heads-after-training.md": {"generative": training.generative},
}


def rendered(page: str) -> str:
    """The text of a page with its tables written again."""
    text = (ROOT / page).read_text()
    for name, make in TABLES[page].items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if begin not in text or end not in text:
            raise SystemExit(f"{page} has no place for the table {name!r}")
        before, rest = text.split(begin)
        text = f"{before}{begin}{make()}\n{end}{rest.split(end)[1]}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare, and fail if different")
    check = parser.parse_args().check
    texts = {page: rendered(page) for page in TABLES}
    stale = [page for page, text in texts.items() if text != (ROOT / page).read_text()]
    if not check:
        for page in stale:
            (ROOT / page).write_text(texts[page])
    print("changed:" if stale else "nothing changed", *stale)
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
