"""Problems of classification on which defaults are chosen, by data held out from training."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

WIDTH = 128  # of the hidden layer of their networks
IMDB_SIZES = (10, 100, 1000)
HELD_OUT = 5000  # reviews
TABLES = ("digits", "wine", "breast_cancer")


class Problem(NamedTuple):
    name: str
    features: Tensor  # (T, inputs)
    target: Tensor  # (T,)
    num_train: int
    num_held_out: int

    def split(self, seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Training data and held-out data."""
        order = torch.randperm(len(self.target), generator=torch.Generator().manual_seed(seed))
        train = order[: self.num_train]
        rest = order[self.num_train : self.num_train + self.num_held_out]
        return (self.features[train], self.target[train]), (self.features[rest], self.target[rest])


def imdb(folder: Path) -> list[Problem]:
    """Sentence embeddings of film reviews of the training set, positive or negative."""
    import numpy as np

    with np.load(folder / "imdb" / "minilm_embeddings.npz") as stored:
        train = stored["is_train"].astype(bool)
        features = torch.from_numpy(stored["embeddings"][train]).float()
        target = torch.from_numpy(stored["labels"][train]).long()
    return [Problem(f"imdb, {n}", features, target, n, HELD_OUT) for n in IMDB_SIZES]


def tables() -> list[Problem]:
    """Three tables of scikit-learn, columns of unit variance; half of the rows held out."""
    from sklearn import datasets

    found = []
    for name in TABLES:
        columns, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
        features = torch.from_numpy(columns).float()
        features = (features - features.mean(0)) / features.std(0).clamp_min(1e-6)
        half = len(labels) // 2
        found.append(Problem(name, features, torch.from_numpy(labels).long(), half, half))
    return found


def stored(path: Path) -> Problem:
    """Features (T, N) and labels (T,) of a pretrained network, saved as a pair by torch.save."""
    features, target = torch.load(path)
    half = len(target) // 2
    return Problem("pretrained", features, target, half, half)
