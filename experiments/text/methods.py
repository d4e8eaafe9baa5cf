"""The methods of the sentiment experiment, with the settings and seeds of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..baselines.crossfitted import Crossfitted
from ..baselines.default import DefaultHead
from ..baselines.deterministic import Deterministic
from ..baselines.discriminative import DiscriminativeVBLL
from ..baselines.generative import GenerativeVBLL
from ..baselines.laplace import LastLayerLaplace
from ..baselines.logistic import Logistic
from ..baselines.posttrained import Posttrained
from ..baselines.temperature import Temperature
from ..baselines.vbll_package import DiscriminativePackage
from ..harness.method import Entry, Method

SIZES = {"10": 10, "100": 100, "1000": 1_000, "25000": 25_000}  # training reviews; the paper's
TUNED_AT = {"10": "10", "100": "10", "1000": "25000", "25000": "25000"}  # the nearer, in logarithms
SEEDS = {"10": 10, "100": 10, "1000": 10, "25000": 3}  # the paper has three
ALONE = dict.fromkeys(SEEDS, 1)  # seeds of a job

# The paper names neither: about a thousand steps, where there are enough reviews.
EPOCHS = {"10": 100, "100": 100, "1000": 30, "25000": 10}
BATCH_SIZE = {"10": 32, "100": 32, "1000": 32, "25000": 256}
LENGTH = {"epochs": EPOCHS, "batch_size": BATCH_SIZE}

# What `python -m experiments text --tune` chose on held-out training reviews, at 10 and at 25,000:
# learning rate and weight decay, by NLL, and for "mlp-accuracy" by accuracy. A test compares them
# with the record, results/text/tuning.jsonl.
TUNED: dict[str, dict[str, tuple[float, float]]] = {
    "d-vbll": {"10": (3e-4, 1.0), "25000": (3e-4, 1.0)},
    "g-vbll": {"10": (3e-3, 0.01), "25000": (3e-4, 0.01)},
    "mlp": {"10": (3e-4, 1.0), "25000": (3e-4, 0.01)},
    "mlp-accuracy": {"10": (3e-3, 1.0), "25000": (3e-4, 0.01)},
}


def tuned(method: str) -> dict[str, Mapping[str, Any]]:
    """The settings of a method, with what was tuned for it."""
    rates = {size: TUNED[method][at] for size, at in TUNED_AT.items()}
    return LENGTH | {
        "learning_rate": {size: rate for size, (rate, _) in rates.items()},
        "weight_decay": {size: decay for size, (_, decay) in rates.items()},
    }


def differs(size: str) -> bool:
    """Whether tuning MLP by accuracy chose other settings than by NLL."""
    return TUNED["mlp-accuracy"][size] != TUNED["mlp"][size]


def entry(method: type[Method], settings: Mapping[str, Any], **about: Any) -> Entry:
    """A method with its seeds, which train together."""
    return Entry(method=method, settings=settings, num_seeds=SEEDS, together=SEEDS, **about)


METHODS: dict[str, Entry] = {
    "fit": entry(
        DefaultHead,
        tuned("mlp"),
        label="Ours, `fit`",
        about="Ours by default: MLP's network and training with a head for its last layer.",
    ),
    "posttrain": entry(
        Posttrained,
        tuned("mlp"),
        label="Ours, `posttrain`",
        about="Ours by default: `posttrain` of MLP.",
    ),
    "crossfit": entry(
        Crossfitted,
        tuned("mlp"),
        label="Ours, `crossfit`",
        about="Ours with the length of training and a temperature from out-of-fold predictions.",
    ),
    "d-vbll": entry(DiscriminativeVBLL, tuned("d-vbll")),
    "g-vbll": entry(GenerativeVBLL, tuned("g-vbll")),
    "mlp": entry(Deterministic, tuned("mlp"), label="MLP", about="The network with a softmax."),
    "mlp-accuracy": Entry(
        method=Deterministic,
        settings=tuned("mlp-accuracy"),
        label="MLP, tuned by accuracy",
        about="MLP with the learning rates and weight decays of the highest held-out accuracy.",
        num_seeds={size: SEEDS[size] for size, at in TUNED_AT.items() if differs(at)},
        together=SEEDS,
    ),
    "temperature": entry(Temperature, tuned("mlp"), label="MLP, temperature scaling"),
    "laplace-full": entry(
        LastLayerLaplace, tuned("mlp") | {"structure": "full"}, label="MLP, Laplace, full"
    ),
    "laplace-kron": entry(
        LastLayerLaplace, tuned("mlp") | {"structure": "kron"}, label="MLP, Laplace, Kronecker"
    ),
    "laplace-diag": entry(
        LastLayerLaplace, tuned("mlp") | {"structure": "diag"}, label="MLP, Laplace, diagonal"
    ),
    "vbll": Entry(
        method=DiscriminativePackage, settings=tuned("d-vbll"), num_seeds=SEEDS, together=ALONE
    ),
    "logistic": Entry(method=Logistic, num_seeds=SEEDS | {"25000": 1}, together=ALONE),
}
PAPER = ("d-vbll", "g-vbll", "mlp")  # the methods of its figure
OURS = ("fit", "posttrain", "crossfit")
