"""Six regression problems of the UCI repository, as the paper splits and scales them.

Tables are read from `uci/<name>.csv` in the folder of data: a header, and the target `y` last.
`python -m experiments download` fetches them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import folder

Pair = tuple[Tensor, Tensor]

NAMES = ("boston", "concrete", "energy", "power", "wine", "yacht")
TEST, VALIDATION = 0.1, 0.18  # of all examples; the rest is for training (paper, appendix D)


class Split(NamedTuple):
    """Training, validation and test data of one seed, (T, N) and (T, 1) each.

    Inputs are standardised and targets centred by the statistics of the training data; targets
    may be scaled too, and then `target_scale` is what to multiply them by.
    """

    train: Pair
    validation: Pair
    test: Pair
    target_scale: float = 1.0


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, (T, N), and targets, (T,).

    Rows are sorted, so that splits do not depend on the order in which a source has them.
    """
    path = folder.find(f"uci/{name}.csv", "python -m experiments download")
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

    return Split(pair(train), pair(validation), pair(test), scale)
