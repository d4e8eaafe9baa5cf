"""Images are read as they were packed, and as their authors publish them."""

import io
import tarfile

import numpy as np
import pytest
import torch

from experiments.datasets import images
from tests.helpers.pictures import packed


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path))
    (tmp_path / "images").mkdir()
    images.load.cache_clear()
    yield
    images.load.cache_clear()


def test_a_packed_file_is_unpacked_to_the_same_pixels(tmp_path):
    pixels = np.random.default_rng(1).integers(0, 256, (3, 3, 32, 32)).astype(np.uint8)
    z, labels = np.frombuffer(packed(pixels), np.uint8), np.array([2, 0, 1])
    path = tmp_path / "images" / "cifar10_test.packed.npz"
    np.savez(path, z=z, labels=labels, shape=np.array([3, 32, 32, 3]))
    found, target = images.load("cifar10/test")
    assert torch.equal(found, torch.from_numpy(pixels))
    assert target.tolist() == [2, 0, 1]
    assert target.dtype == torch.int64


@pytest.mark.parametrize(("name", "before"), [("cifar10/train", [7]), ("cifar100/train", [9, 7])])
def test_archives_of_the_authors_are_read_without_unpickling(name, before, tmp_path):
    source = images.SOURCES[name]
    pixels = np.random.default_rng(2).integers(0, 256, (len(source.members), 3, 32, 32))
    pixels = pixels.astype(np.uint8)
    with tarfile.open(tmp_path / source.archive, "w:gz") as archive:
        for member, image in reversed(list(zip(source.members, pixels, strict=True))):
            content = bytes(before) + image.tobytes()
            about = tarfile.TarInfo(f"somewhere/{member}")
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    found, target = images.load(name)
    assert torch.equal(found, torch.from_numpy(pixels))
    assert target.tolist() == [7] * len(pixels)


def test_digits_of_svhn_are_read_with_ten_for_zero(tmp_path):
    from scipy.io import savemat

    pixels = np.random.default_rng(3).integers(0, 256, (32, 32, 3, 2)).astype(np.uint8)
    savemat(tmp_path / "images" / "test_32x32.mat", {"X": pixels, "y": np.array([[10], [4]])})
    found, target = images.load("svhn/test")
    assert found.shape == (2, 3, 32, 32)
    assert found[1, 2, 5, 6] == pixels[5, 6, 2, 1]
    assert target.tolist() == [0, 4]


def test_what_is_missing_is_named_with_the_command_that_fetches_it():
    with pytest.raises(FileNotFoundError, match="experiments images --download"):
        images.load("cifar10/train")


def test_an_incomplete_archive_is_refused(tmp_path):
    with tarfile.open(tmp_path / images.SOURCES["cifar10/test"].archive, "w:gz"):
        pass
    with pytest.raises(ValueError, match=r"test_batch\.bin"):
        images.load("cifar10/test")


def test_what_is_there_is_not_fetched_again(tmp_path, monkeypatch):
    asked = []

    def answer(url):
        asked.append(url)
        return io.BytesIO(b"content")

    monkeypatch.setattr("urllib.request.urlopen", answer)
    (tmp_path / "images" / "test_32x32.mat").write_bytes(b"there")
    written = images.fetch()
    assert sorted(path.name for path in written) == [
        "cifar-10-binary.tar.gz",
        "cifar-100-binary.tar.gz",
    ]
    assert all(path.read_bytes() == b"content" for path in written)
    assert len(asked) == 2
