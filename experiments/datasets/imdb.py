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
JSON, ARCHIVE = "imdb_reviews.jsonl.xz", "aclImdb_v1.tar.gz"
SOURCE = f"https://ai.stanford.edu/~amaas/data/sentiment/{ARCHIVE}"


class Features(NamedTuple):
    """Features (T, N) and labels (T,) of all training and of all test reviews; 1 is positive."""

    train: Pair
    test: Pair


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
    return Features((inputs[is_train], label[is_train]), (inputs[~is_train], label[~is_train]))


def sample(data: Pair, size: int, seed: int) -> Pair:
    """Training reviews at random; all of them in their order if `size` is their number."""
    inputs, label = data
    if size == len(label):
        return data
    chosen = _order(len(label), seed)[:size]
    return inputs[chosen], label[chosen]


def held_out(data: Pair, size: int, seed: int) -> tuple[Pair, Pair]:
    """Training reviews at random, at most `size`, and others to tune by."""
    inputs, label = data
    order = _order(len(label), seed)
    count = min(NUM_HELD_OUT, len(order) // 2)
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
