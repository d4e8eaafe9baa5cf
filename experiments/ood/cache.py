"""Features in files, a part at a time, so that computing them can be interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

PART = 500  # examples in a file


def features(
    folder: Path,
    name: str,
    inputs: Sequence[Any] | Tensor,
    encode: Callable[[Any], np.ndarray],
    progress: bool = True,
) -> Tensor:
    """The features of all inputs, (T, N); parts that are there are read.

    Args:
        folder: of the parts.
        name: of the inputs, which with their number names the parts: other inputs need another.
        inputs: images or texts.
        encode: from some of them to their features.
        progress: whether to show a progress bar.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for at in tqdm(range(0, len(inputs), PART), desc=name, disable=not progress, leave=False):
        rows = inputs[at : at + PART]
        path = folder / f"{name}-{at:06d}-{len(rows)}.npy"
        if not path.exists():
            partial = path.with_suffix(".partial.npy")
            np.save(partial, encode(rows))
            partial.replace(path)
        found.append(torch.from_numpy(np.load(path)).float())
    return torch.cat(found)
