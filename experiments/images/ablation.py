"""The paper's table of KL weights: D-VBLL on CIFAR-10, with features fixed or variational."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from ..baselines.discriminative import DiscriminativeVBLL
from ..baselines.single_layer_bbb import DiscriminativeBBB
from ..harness import networks
from ..harness.jobs import Experiment
from ..harness.method import Entry
from ..harness.statistics import Runs
from ..harness.tables import BLANK, show, table
from .methods import NUM_TRAIN, TRAINING
from .published import ABLATION, FEATURES, KL_WEIGHTS
from .task import NLL, ImageTask, task

EPOCHS = {"small": 4, "wrn-28-10": 300}
DATASET = "cifar10"


def _task(backbone: str, column: str, seed: int, method: Any) -> ImageTask:
    return task(DATASET, backbone, seed, networks.folder())


def _entry(backbone: str, weight: str) -> dict[str, Entry]:
    """The two methods of a row: without and with variational features."""
    settings = TRAINING[backbone] | {"epochs": EPOCHS[backbone], "kl_weight": float(weight)}
    variational = [name for name in FEATURES if name != "map"]
    weights = {name: float(name) for name in variational}
    return {
        f"d_vbll_{weight}": Entry(
            method=DiscriminativeVBLL,
            settings=settings,
            num_seeds={"map": 1},
            together={"map": 1},
        ),
        f"d_vbll_bbb_{weight}": Entry(
            method=DiscriminativeBBB,
            settings=settings | {"feature_kl_weight": weights},
            num_seeds=dict.fromkeys(variational, 1),
            together=dict.fromkeys(variational, 1),
        ),
    }


def experiment(backbone: str = "small") -> Experiment:
    """A column for each weight of the features' divergence, two methods for each of the head's."""
    entries: dict[str, Entry] = {}
    for weight in KL_WEIGHTS:
        entries |= _entry(backbone, weight)
    about = {"dataset": DATASET, "backbone": backbone}
    return Experiment(
        name="images/ablation",
        columns={name: about | {"features": name} for name in FEATURES},
        entries=entries,
        task=functools.partial(_task, backbone),
        num_data=lambda column: NUM_TRAIN[DATASET],
    )


EXPERIMENT = experiment()


def section(results: Path) -> str:
    """The table, measured | paper; nothing without records."""
    runs = Runs.load(EXPERIMENT, results)
    if not runs.by_cell:
        return "Not run yet: `python -m experiments images --ablation`."
    rows = []
    for weight in KL_WEIGHTS:
        cells = []
        for name in FEATURES:
            entry = f"d_vbll_{weight}" if name == "map" else f"d_vbll_bbb_{weight}"
            measured = runs.estimate(entry, name, NLL.name)
            shown = BLANK if measured is None else show(measured, NLL.digits)
            cells.append(f"{shown} \\| {ABLATION[weight, name]:.3f}")
        rows.append([weight, *cells])
    header = ["weight of the last layer's KL", "MAP features"]
    header += [f"features' KL × {name}" for name in FEATURES if name != "map"]
    return table(header, rows)
