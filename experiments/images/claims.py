"""Which claims hold, computed from the records: the paper's (section 5.2), and targets set here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..harness.statistics import Estimate, Metric, Runs, gain
from ..harness.tables import BLANK, signed, table
from .methods import DATASETS, OURS
from .task import ACCURACY, ECE, NLL, OTHER, SVHN

TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
BEYOND = 2.0  # standard errors


class Claim(NamedTuple):
    """One method is better than another by a metric, or by some tolerance not worse."""

    text: str
    method: str
    than: str
    metric: Metric
    datasets: Sequence[str] = DATASETS
    within: float = 0.0  # standard errors by which it may be worse


PAPER = (
    Claim("D-VBLL is as accurate as DNN, or more", "d_vbll", "dnn", ACCURACY, within=1.0),
    Claim("D-VBLL has a lower ECE than DNN", "d_vbll", "dnn", ECE),
    Claim("D-VBLL has a lower NLL than DNN", "d_vbll", "dnn", NLL),
    Claim("D-VBLL tells SVHN better than DNN", "d_vbll", "dnn", SVHN),
    Claim("D-VBLL is more accurate than SNGP", "d_vbll", "sngp", ACCURACY),
    Claim("D-VBLL tells SVHN better than SNGP", "d_vbll", "sngp", SVHN, ("cifar10",)),
    Claim("D-VBLL tells SVHN as well as SNGP", "d_vbll", "sngp", SVHN, ("cifar100",), within=1.0),
    Claim("SNGP has a lower NLL than D-VBLL", "sngp", "d_vbll", NLL),
    Claim("SNGP has a lower ECE than D-VBLL", "sngp", "d_vbll", ECE),
    Claim("DNN + D-VBLL has a lower NLL than DNN", "dnn_d_vbll", "dnn", NLL),
    Claim("DNN + G-VBLL has a higher NLL than G-VBLL", "g_vbll", "dnn_g_vbll", NLL),
    Claim("G-VBLL + MAP tells SVHN better than G-VBLL", "g_vbll_map", "g_vbll", SVHN),
    Claim("G-VBLL + MAP tells the other CIFAR better than G-VBLL", "g_vbll_map", "g_vbll", OTHER),
    Claim("D-VBLL BBB has a higher NLL than D-VBLL", "d_vbll", "d_vbll_bbb", NLL),
    Claim("G-VBLL BBB has a higher NLL than G-VBLL", "g_vbll", "g_vbll_bbb", NLL),
)
LEARNED = (  # what the paper leaves open, by the data
    Claim("G-VBLL + MAP, s learned, tells SVHN better", "g_vbll_map_evidence", "g_vbll", SVHN),
    Claim("and the other CIFAR better", "g_vbll_map_evidence", "g_vbll", OTHER),
)
READING = """\
Gains of the first method over the second on the same seeds ± their standard errors; above zero is
better, whatever the metric's direction, and "beyond two" are gains of more than two standard
errors. "As" allows one standard error. Of the networks the small one was trained here, so a claim
that fails may hold with the paper's."""


def verdict(found: Estimate | None, within: float = 0.0) -> str:
    """Whether a gain is there."""
    if found is None:
        return "not measured"
    stderr = 0.0 if math.isnan(found.stderr) else found.stderr
    if found.mean > 0 and not math.isnan(found.stderr) and found.mean > BEYOND * stderr:
        return "holds, beyond two"
    close = within > 0 and found.mean >= -within * stderr
    return "holds" if found.mean > 0 or close else "does not hold"


def rows(runs: Runs, claims: Sequence[Claim] = PAPER + LEARNED) -> list[list[str]]:
    """A row for each claim: the verdict and the gain on each data set."""
    lines = []
    for claim in claims:
        cells = []
        for dataset in DATASETS:
            if dataset not in claim.datasets:
                cells.append(BLANK)
                continue
            found = gain(runs, claim.method, dataset, claim.metric, claim.than)
            cells.append(f"{verdict(found, claim.within)}{_shown(found, claim.metric)}")
        lines.append([claim.text, *cells])
    return lines


def _shown(found: Estimate | None, metric: Metric) -> str:
    if found is None:
        return ""
    text = signed(metric.scale * found.mean, metric.digits)
    if math.isfinite(found.stderr):
        text += f" ± {metric.scale * found.stderr:.{metric.digits}f}"
    return f" ({text})"


def summary(runs: Runs) -> str:
    """The claims as a table."""
    header = ["claim", *(TITLES[name] for name in DATASETS)]
    return f"{table(header, rows(runs))}\n\n{READING}"


def targets(runs: Runs) -> str:
    """What was aimed at with ours, against all rows but those it is chosen of."""
    if not runs.has(OURS[0]):
        return "There are no records of ours yet."
    every = [name for name in runs.methods if name not in OURS and runs.has(name)]
    single = [name for name in every if runs.methods[name].single_pass]
    lines = []
    for metric in (NLL, ECE, SVHN, OTHER):
        others = single if metric in (NLL, ECE) else every
        cells = [_against(runs, OURS[0], others, name, metric) for name in DATASETS]
        lines.append([f"{runs.methods[OURS[0]].label}, {metric.label}", *cells])
    header = ["ours against the best other row", *(TITLES[name] for name in DATASETS)]
    return table(header, lines)


def _against(runs: Runs, method: str, others: Sequence[str], dataset: str, metric: Metric) -> str:
    """The gain over the best other method."""
    sign = -1.0 if metric.higher_is_better else 1.0
    means = {
        name: sign * cell.mean
        for name in others
        if (cell := runs.estimate(name, dataset, metric.name)) is not None
    }
    if not means:
        return BLANK
    best = min(means, key=lambda name: means[name])
    found = gain(runs, method, dataset, metric, best)
    return f"{verdict(found)}{_shown(found, metric)}, {runs.methods[best].label}"


def headline(runs: Runs) -> str:
    """One line for the index."""
    found = [
        verdict(gain(runs, claim.method, dataset, claim.metric, claim.than), claim.within)
        for claim in PAPER
        for dataset in claim.datasets
    ]
    measured = [one for one in found if one != "not measured"]
    holds = sum(one.startswith("holds") for one in measured)
    return (
        f"CIFAR-10 and CIFAR-100 with a small network: {holds} of {len(measured)} comparisons that "
        "the paper draws, and that are measured, come out as in the paper."
    )
