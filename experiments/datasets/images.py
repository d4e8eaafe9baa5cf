"""CIFAR-10, CIFAR-100 and SVHN: images of 32 × 32 pixels with three colours, as bytes.

Each set is read from a packed file `images/<set>.packed.npz` in the folder of data, if there is
one, else from its authors' archive in the same folder, which `--download` fetches.

A packed file is lossless: `labels`, `shape`, and `z`, an xz stream of the planes red − green,
green and blue − green (modulo 256). Of each pixel it has the difference from a prediction by its
neighbours to the left, above, and above left, with the sign folded into the last bit.
"""

from __future__ import annotations

import functools
import lzma
import shutil
import tarfile
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from . import folder

Pair = tuple[Tensor, Tensor]

PIXELS = 3 * 32 * 32
COMMAND = "python -m experiments images --download"


class Source(NamedTuple):
    """Where a set of images is."""

    packed: str  # the packed file, without its ending
    url: str  # of the authors' archive
    members: tuple[str, ...] = ()  # of the archive
    label_bytes: int = 1  # before the pixels of an image; the last of them counts

    @property
    def archive(self) -> str:
        """The file of the archive, in the folder of data."""
        return f"images/{self.url.rpartition('/')[2]}"


_10 = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_100 = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
_BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
SOURCES = {
    "cifar10/train": Source("cifar10_train", _10, _BATCHES),
    "cifar10/test": Source("cifar10_test", _10, ("test_batch.bin",)),
    "cifar100/train": Source("cifar100_train20k", _100, ("train.bin",), 2),
    "cifar100/test": Source("cifar100_test", _100, ("test.bin",), 2),
    "svhn/test": Source("svhn_test10k", "http://ufldl.stanford.edu/housenumbers/test_32x32.mat"),
}


@functools.cache
def load(name: str) -> Pair:
    """Images as bytes, (T, 3, 32, 32), and labels, (T,), read once.

    Args:
        name: "cifar10/train", "cifar10/test", "cifar100/train", "cifar100/test" or "svhn/test".
    """
    source = SOURCES[name]
    packed = folder.root() / "images" / f"{source.packed}.packed.npz"
    if packed.is_file():
        pixels, labels = unpack(packed)
    else:
        path = folder.find(source.archive, COMMAND)
        pixels, labels = read_binary(path, source) if source.members else read_mat(path)
    images = torch.from_numpy(np.ascontiguousarray(pixels))
    return images, torch.from_numpy(labels.astype(np.int64))


def unpack(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The pixels, (T, 3, H, W), and labels, (T,), of a packed file."""
    with np.load(path, allow_pickle=False) as file:
        count, height, width, _ = map(int, file["shape"])
        stream = lzma.decompress(file["z"].tobytes())
        labels = file["labels"]
    folded = np.frombuffer(stream, np.uint8).reshape(3, count, height, width)
    planes = np.stack([_restore(plane) for plane in folded], 1)
    planes[:, 0] += planes[:, 1]  # modulo 256, as bytes are
    planes[:, 2] += planes[:, 1]
    return planes, labels


def _restore(folded: np.ndarray) -> np.ndarray:
    """One plane of all images, (T, H, W), from the residuals of its prediction."""
    residual = np.ascontiguousarray(folded.transpose(1, 2, 0)).astype(np.int16)
    residual = np.where(residual & 1, 255 - (residual >> 1), residual >> 1)
    height, width, count = residual.shape
    plane = np.zeros((height + 1, width + 1, count), np.int16)  # with a margin above and left
    for row in range(1, height + 1):
        for column in range(1, width + 1):
            left, up = plane[row, column - 1], plane[row - 1, column]
            guess = left + up  # of which one is zero at the margin
            if row > 1 and column > 1:  # the median of left, up and their plane
                corner = plane[row - 1, column - 1]
                low, high = np.minimum(left, up), np.maximum(left, up)
                guess = np.clip(left + up - corner, low, high)
            plane[row, column] = (residual[row - 1, column - 1] + guess) & 255
    return plane[1:, 1:].transpose(2, 0, 1).astype(np.uint8)


def read_binary(path: Path, source: Source) -> tuple[np.ndarray, np.ndarray]:
    """The pixels, (T, 3, 32, 32), and labels of the binary version of CIFAR."""
    parts = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = Path(member.name).name
            content = archive.extractfile(member) if name in source.members else None
            if content is not None:
                rows = np.frombuffer(content.read(), np.uint8)
                parts[name] = rows.reshape(-1, source.label_bytes + PIXELS)
    if absent := [name for name in source.members if name not in parts]:
        raise ValueError(f"{path} has no {', '.join(absent)}; delete it and fetch it: {COMMAND}")
    whole = np.concatenate([parts[name] for name in source.members])
    pixels = whole[:, source.label_bytes :].reshape(-1, 3, 32, 32)
    return pixels, whole[:, source.label_bytes - 1]


def read_mat(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The pixels, (T, 3, 32, 32), and labels of SVHN's cropped digits; its ten stands for zero."""
    from scipy.io import loadmat

    content = loadmat(path)
    return content["X"].transpose(3, 2, 0, 1), content["y"].flatten() % 10


def fetch(names: Iterable[str] = tuple(SOURCES)) -> list[Path]:
    """Download the archives that are not there yet; the paths of those that were written."""
    found = {folder.root() / SOURCES[name].archive: SOURCES[name].url for name in names}
    absent = {path: url for path, url in found.items() if not path.exists()}
    for path, url in (bar := tqdm(absent.items(), unit="archive")):
        bar.set_description(path.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        with urllib.request.urlopen(url) as answer, partial.open("wb") as file:
            shutil.copyfileobj(answer, file)
        partial.replace(path)
    return list(absent)
