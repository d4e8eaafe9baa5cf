"""Reviews and their features, made up: few, small, and of two classes that can be told apart."""

import json
import lzma
from pathlib import Path

import numpy as np

WIDTH = 6


def write_features(root: Path, features: str = "minilm", num_each: int = 300) -> None:
    """`imdb/<features>_embeddings.npz` with as many training as test reviews."""
    generator = np.random.default_rng(0)
    label = generator.integers(2, size=2 * num_each)
    inputs = generator.normal(size=(2 * num_each, WIDTH))
    inputs[:, 0] += 2.0 * label
    (root / "imdb").mkdir(parents=True, exist_ok=True)
    np.savez(
        root / "imdb" / f"{features}_embeddings.npz",
        embeddings=inputs.astype(np.float16),
        labels=label,
        is_train=np.arange(2 * num_each) % 2 == 0,
        id=np.arange(2 * num_each),
    )


def write_reviews(root: Path, texts: list[str]) -> None:
    """`imdb/imdb_reviews.jsonl.xz`; every other one is positive, the second half is for tests."""
    (root / "imdb").mkdir(parents=True, exist_ok=True)
    with lzma.open(root / "imdb" / "imdb_reviews.jsonl.xz", "wt", encoding="utf-8") as file:
        for at, text in enumerate(texts):
            split = "train" if 2 * at < len(texts) else "test"
            row = {"split": split, "label": at % 2, "rating": 5, "id": at, "text": text}
            file.write(json.dumps(row) + "\n")
