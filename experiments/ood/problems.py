"""Training features, in-distribution features, and features of other data sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import lastlayer as ll

from ..backbones import mlp
from ..datasets import imdb
from ..text.embed import MINILM, Encoder
from . import texts
from .cache import features
from .encoders import image_features

Pair = tuple[Tensor, Tensor]
VALIDATION, TEST = "validation", "test"
SPLITS = (VALIDATION, TEST)


@dataclass(frozen=True)
class Config:
    """How many examples there are."""

    train: int = 4000
    validation: int = 1000  # in distribution, from the same training set
    test: int = 3000  # in distribution
    out_images: int = 2000  # of each other data set, for each split
    out_texts: int = 500  # reviews in disorder
    max_tokens: int = 256
    width: int = 128  # of the network that is trained on texts
    epochs: int = 30


@dataclass(frozen=True)
class Problem:
    """Inputs of a backbone; out-of-distribution ones by name."""

    backbone: nn.Module
    num_features: int
    train: Pair
    inside: Pair
    outside: dict[str, Tensor]


def pretrained_images(folder: Path, split: str, config: Config) -> Problem:
    """CIFAR-10 against SVHN, which is far, and CIFAR-100, which is near."""
    take = partial(image_features, folder)
    train = take("cifar10/train", 0, config.train)
    count = config.out_images
    if split == VALIDATION:
        inside = take("cifar10/train", config.train, config.validation)
        outside = {"svhn": ("svhn/test", count), "cifar100": ("cifar100/train", 0)}
    else:
        inside = take("cifar10/test", 0, config.test)
        outside = {"svhn": ("svhn/test", 0), "cifar100": ("cifar100/test", 0)}
    others = {key: take(name, at, count)[0] for key, (name, at) in outside.items()}
    return Problem(nn.Identity(), train[0].shape[-1], train, inside, others)


def pretrained_texts(folder: Path, split: str, config: Config) -> Problem:
    """Film reviews against paragraphs about Python, which are far, and reviews in disorder."""
    data = imdb.load(MINILM)
    train, others = imdb.held_out(data.train, config.train, seed=0)
    inside = others if split == VALIDATION else imdb.sample(data.test, config.test, seed=0)
    encoder = cache(lambda: Encoder(MINILM, config.max_tokens))
    is_train = split == VALIDATION
    reviews = [review.text for review in imdb.reviews() if review.is_train == is_train]
    order = np.random.default_rng(1).permutation(len(reviews))[: config.out_texts]
    halves = texts.paragraphs()[SPLITS.index(split) :: 2]
    found = {
        "python": halves,
        "shuffled": texts.shuffled([reviews[at] for at in order], seed=0),
    }
    outside = {
        name: features(folder / "minilm", f"{name}-{split}", rows, lambda some: encoder()(some))
        for name, rows in found.items()
    }
    count = config.validation if is_train else config.test
    some = (inside[0][:count], inside[1][:count])
    return Problem(nn.Identity(), train[0].shape[-1], train, some, outside)


def trained_texts(folder: Path, split: str, config: Config) -> Problem:
    """The same, on the hidden layer of a network that was trained to tell their sentiment."""
    found = pretrained_texts(folder, split, config)
    torch.manual_seed(0)
    hidden = mlp.features(found.num_features, width=config.width, depth=1)
    head = ll.DiscriminativeClassification(config.width, 2, num_data=config.train)
    ll.fit(ll.Network(hidden, head), found.train, epochs=config.epochs, progress=False)
    backbone = hidden.eval().requires_grad_(False)
    return Problem(backbone, config.width, found.train, found.inside, found.outside)


PROBLEMS: dict[str, Callable[[Path, str, Config], Problem]] = {
    "images": pretrained_images,
    "texts": pretrained_texts,
    "trained-texts": trained_texts,
}
TITLES = {
    "images": "CIFAR-10, features of EfficientNet-lite0",
    "texts": "Film reviews, features of MiniLM",
    "trained-texts": "Film reviews, hidden layer of a trained network",
}
