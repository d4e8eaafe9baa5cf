"""Sentiment of film reviews: IMDB, 25,000 to train and 25,000 to test (Maas et al., 2011).

Features of the reviews are read from `imdb/<features>_embeddings.npz` in the folder of data;
`python -m experiments text --embed` computes them from the reviews themselves.
"""

from __future__ import annotations

import functools
import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import folder

Pair = tuple[Tensor, Tensor]

NUM_HELD_OUT = 5_000  # training reviews that tuning holds out
MAX_REVIEWS = 30  # of a film, as Maas et al. collected them
JSON, ARCHIVE = "imdb_reviews.jsonl.xz", "aclImdb_v1.tar.gz"
SOURCE = f"https://ai.stanford.edu/~amaas/data/sentiment/{ARCHIVE}"


class Features(NamedTuple):
    """Features (T, N) and labels (T,) of all training and of all test reviews; 1 is positive.

    Films of training reviews are not those of test reviews. Reviews of a film have neighbouring
    numbers, so `groups`, as many numbers as a film can have reviews, keep most of them together.
    """

    train: Pair
    test: Pair
    groups: Tensor  # of training reviews, (T,)


def path(features: str) -> Path:
    """Where the features of an encoder are."""
    return folder.root() / "imdb" / f"{features}_embeddings.npz"


def load(features: str) -> Features:
    """The features of an encoder, read once."""
    name = f"imdb/{features}_embeddings.npz"
    return _load(folder.find(name, "python -m experiments text --embed"))


@functools.cache
def _load(path: Path) -> Features:
    with np.load(path) as file:
        inputs = torch.from_numpy(file["embeddings"].astype(np.float32))
        label = torch.from_numpy(file["labels"].astype(np.int64))
        is_train = torch.from_numpy(file["is_train"].astype(bool))
        number = torch.tensor([int(str(name).split("_")[0]) for name in file["id"]])
    groups = (number // MAX_REVIEWS) * 2 + label  # films are numbered anew for each label
    train, test = ((inputs[rows], label[rows]) for rows in (is_train, ~is_train))
    return Features(train, test, groups[is_train])


def sample(data: tuple[Tensor, ...], size: int, seed: int) -> tuple[Tensor, ...]:
    """Training reviews at random; all of them in their order if `size` is their number."""
    total = len(data[0])
    if size == total:
        return data
    chosen = _order(total, seed)[:size]
    return tuple(part[chosen] for part in data)


def held_out(data: Pair, size: int, seed: int, groups: Tensor | None = None) -> tuple[Pair, Pair]:
    """Training reviews at random, at most `size`, and others to tune by, of other groups if any."""
    inputs, label = data
    order = _order(len(label), seed)
    count = min(NUM_HELD_OUT, len(order) // 2)
    if groups is not None:
        group = groups.unique(return_inverse=True)[1]
        rank = _order(int(group.max()) + 1, seed)[group[order]]
        order = order[rank.argsort(stable=True)]  # a group after the other
        edge = rank.sort().values[-count]
        count = int((rank >= edge).sum())  # no group in two parts
        order[:-count] = order[:-count][_order(len(order) - count, seed)]
    chosen, others = order[: min(size, len(order) - count)], order[-count:]
    return (inputs[chosen], label[chosen]), (inputs[others], label[others])


def _order(size: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).permutation(size))


class Review(NamedTuple):
    """One review."""

    text: str
    label: int
    is_train: bool
    id: str


def reviews() -> list[Review]:
    """All reviews: of the JSON lines in the folder of data, else of the original archive.

    Line breaks, which the originals have as HTML, are spaces.
    """
    return [review._replace(text=review.text.replace("<br />", " ")) for review in _read()]


def _read() -> list[Review]:
    if (lines := folder.root() / "imdb" / JSON).is_file():
        with lzma.open(lines, "rt", encoding="utf-8") as file:
            return [_parsed(json.loads(line)) for line in file]
    return _unpacked(folder.find(f"imdb/{ARCHIVE}", f"curl --remote-name {SOURCE}"))


def _parsed(row: dict[str, object]) -> Review:
    return Review(
        str(row["text"]), int(bool(row["label"])), row["split"] == "train", str(row["id"])
    )


def _unpacked(archive: Path) -> list[Review]:
    """Files are named aclImdb/<split>/<pos or neg>/<id>_<rating>.txt; others are left out."""
    found = []
    with tarfile.open(archive) as file:
        for member in file:
            parts = Path(member.name).parts
            if len(parts) == 4 and parts[2] in ("pos", "neg") and member.isfile():
                content = file.extractfile(member)
                assert content is not None
                text = io.TextIOWrapper(content, encoding="utf-8").read()
                label, is_train = int(parts[2] == "pos"), parts[1] == "train"
                found.append(Review(text, label, is_train, Path(parts[3]).stem))
    return sorted(found, key=lambda review: (not review.is_train, review.label, review.id))
