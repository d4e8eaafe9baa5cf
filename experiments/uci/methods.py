"""The methods of the UCI tables, with the settings, seeds and data sets of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..baselines.bbb import BBB
from ..baselines.dropout import Dropout
from ..baselines.ensemble import Ensemble
from ..baselines.gbll import GBLL
from ..baselines.gp import GP
from ..baselines.ldgbll import LDGBLL
from ..baselines.map import MAP
from ..baselines.swag import SWAG
from ..baselines.vbll import VBLL, LastLayer
from ..baselines.vbll_bbb import VBLLBBB
from ..baselines.vbll_package import VBLLPackage
from ..datasets.uci import NAMES
from ..harness.method import Entry, Method
from .variants import ConjugateRows, Deeper, OneFold, OursWithAlternatives, ScaledOurs


def by_dataset(value: Any, **exceptions: Any) -> dict[str, Any]:
    """A value for each data set."""
    return dict.fromkeys(NAMES, value) | exceptions


# The maximum number of epochs and the batch size (paper, appendix D).
EPOCHS = by_dataset(3000, energy=2000, wine=1000, yacht=2000)
BATCH_SIZE = by_dataset(32, power=256)
VARIATIONAL_EPOCHS = 10_000  # of features that are variational
TOGETHER = by_dataset(20, power=10)  # of the largest data set fewer, so that two cores share
PAPER = {"epochs": EPOCHS, "batch_size": BATCH_SIZE}
# The same number of steps on all, in the largest data in fewer epochs.
OURS = {"epochs": by_dataset(2048, power=256), "batch_size": 32}
# As many epochs as validation may want, but on the largest data as time allows.
FULL_BATCH = {"epochs": by_dataset(2000, power=300)}


def entry(
    method: type[Method],
    settings: Mapping[str, Any] = PAPER,
    *,
    num_seeds: int | Mapping[str, int] = 20,  # paper, appendix D
    datasets: Sequence[str] = NAMES,
    together: Mapping[str, int] = TOGETHER,
    **about: Any,
) -> Entry:
    """A method with the paper's settings and seeds, unless told otherwise."""
    seeds = num_seeds if isinstance(num_seeds, Mapping) else by_dataset(num_seeds)
    chosen = {dataset: seeds[dataset] for dataset in datasets}
    return Entry(method=method, settings=settings, num_seeds=chosen, together=together, **about)


def ours(label: str = "", method: type[Method] = OursWithAlternatives, **changes: Any) -> Entry:
    """Our configuration, or a variant of it: on few data sets and seeds, which take less time."""
    together = by_dataset(10)  # fewer than of other methods, for each seed has several models
    if not label:
        return entry(method, OURS, together=together)
    return entry(
        method,
        OURS | changes,
        label=label,
        about=f"Ours with one change: {label}.",
        num_seeds=5,
        datasets=("boston", "wine", "yacht"),
        together=together,
        variant_of="ours",
    )


METHODS: dict[str, Entry] = {
    "ours": ours(),
    "vbll": entry(VBLL),
    "gbll": entry(GBLL, FULL_BATCH),
    "ldgbll": entry(LDGBLL, FULL_BATCH),
    "map": entry(MAP),
    # few at once: they are fitted one by one, and an interrupted job begins anew
    "gp": entry(GP, {}, together=by_dataset(5, power=2)),
    "dropout": entry(Dropout),
    # on the largest data as many epochs as time allows
    "ensemble": entry(Ensemble, PAPER | {"epochs": EPOCHS | {"power": 1000}}),
    "swag": entry(SWAG),
    # about five batches; on the largest data more, for as long as time allows
    "bbb": entry(
        BBB,
        {
            "epochs": by_dataset(VARIATIONAL_EPOCHS, power=1000),
            "batch_size": by_dataset(256, boston=64, energy=128, yacht=64),
        },
        num_seeds=10,  # paper, appendix D
    ),
    "vbll_bbb": entry(VBLLBBB, PAPER | {"epochs": VARIATIONAL_EPOCHS}, num_seeds=10),
    "vbll-package": entry(
        VBLLPackage,
        num_seeds=by_dataset(20, power=5),  # which takes long
        together=by_dataset(20, power=3),
        variant_of="vbll",
    ),
    "vbll-start": entry(
        LastLayer,
        label="VBLL, smaller initial weights",
        about="VBLL with the initial weights of `Regression.initialize`.",
        variant_of="vbll",
    ),
    "vbll-deeper": entry(
        Deeper,
        label="VBLL, three hidden layers",
        datasets=("concrete", "power", "yacht"),
        variant_of="vbll",
    ),
    "vbll_bbb-lighter": entry(
        VBLLBBB,
        PAPER | {"epochs": VARIATIONAL_EPOCHS, "feature_kl_weight": 0.1},
        label="VBLL BBB, a tenth of the features' divergence",
        about="VBLL BBB, in which the divergence of the features counts a tenth.",
        num_seeds=10,
        datasets=("yacht",),  # takes the least time
        variant_of="vbll_bbb",
    ),
    "ours-adamw": ours("AdamW", optimizer="adamw"),
    "ours-centred": ours("targets centred, not scaled", scale_targets=False, noise_scale=1.0),
    "ours-noise": ours("noise scale 1", noise_scale=1.0),
    "ours-bias": ours("no bias", bias=False),
    "ours-constant": ours("constant learning rate", schedule="constant"),
    "ours-start": ours("initial weights at the scale of the targets", ScaledOurs),
    "ours-conjugate": ours("conjugate rows", ConjugateRows),
    "ours-prior": ours("prior variance 100", prior_variance=100.0),
    "ours-decay": ours("no weight decay", weight_decay=(0.0,)),
    "ours-fold": ours("no cross-validation", OneFold),
}
