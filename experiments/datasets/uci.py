"""Six regression problems of the UCI repository, as the paper splits and scales them.

Tables are read from `$LASTLAYER_DATA/uci/<name>.csv`: a header, and the target `y` last. The
folder is `data` where the variable is not set; `python -m experiments download` fills it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]

NAMES = ("boston", "concrete", "energy", "power", "wine", "yacht")
TEST, VALIDATION = 0.1, 0.18  # of all examples; the rest is for training (paper, appendix D)


@dataclass(frozen=True)
class Split:
    """Training, validation and test data of one seed, (T, N) and (T, 1) each.

    Inputs are standardised and targets centred by the statistics of the training data; targets
    may be scaled too, and then `target_scale` is what to multiply them by.
    """

    seed: int
    train: Pair
    validation: Pair
    test: Pair
    target_scale: float = 1.0

    @property
    def num_inputs(self) -> int:
        """N."""
        return self.train[0].shape[-1]

    @property
    def num_data(self) -> int:
        """T, of the training data."""
        return len(self.train[0])

    @property
    def development(self) -> Pair:
        """Training and validation data together."""
        inputs, targets = zip(self.train, self.validation, strict=True)
        return torch.cat(inputs), torch.cat(targets)


def root() -> Path:
    """The folder of all data."""
    return Path(os.environ.get("LASTLAYER_DATA", "data"))


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, (T, N), and targets, (T,).

    Rows are sorted, so that splits do not depend on the order in which a source has them.
    """
    path = root() / "uci" / f"{name}.csv"
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path}; set LASTLAYER_DATA to the folder that holds uci/{name}.csv, or "
            "fetch the data sets with: python -m experiments download"
        )
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    table = table[np.lexsort(table.T[::-1])]
    return table[:, :-1], table[:, -1]


def split(name: str, seed: int, *, scale_targets: bool = False) -> Split:
    """The data of one seed, at random in the paper's proportions."""
    inputs, target = load(name)
    order = np.random.default_rng(seed).permutation(len(target))
    num_test, num_validation = round(TEST * len(order)), round(VALIDATION * len(order))
    test, validation, train = np.split(order, [num_test, num_test + num_validation])
    centre, spread = inputs[train].mean(0), inputs[train].std(0)
    spread[spread == 0] = 1.0  # a column that is constant here carries nothing
    mean = target[train].mean()
    scale = float(target[train].std()) if scale_targets else 1.0

    def pair(rows: np.ndarray) -> Pair:
        x, y = (inputs[rows] - centre) / spread, (target[rows] - mean) / scale
        return torch.tensor(x, dtype=torch.float32), torch.tensor(y[:, None], dtype=torch.float32)

    return Split(seed, pair(train), pair(validation), pair(test), scale)
