"""Reviews: their features, samples of them, and the texts in two formats."""

import io
import tarfile

import numpy as np
import pytest
import torch

from experiments.datasets import imdb
from tests.helpers.reviews import WIDTH, write_features, write_reviews


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path))


def test_features_are_split_as_the_file_says(tmp_path):
    write_features(tmp_path, num_each=50)
    found = imdb.load("minilm")
    with np.load(imdb.path("minilm")) as file:
        inputs, label = file["embeddings"].astype(np.float32), file["labels"]
    for (x, y), rows in zip(found[:2], (slice(0, None, 2), slice(1, None, 2)), strict=True):
        assert x.shape == (50, WIDTH)
        np.testing.assert_array_equal(x.numpy(), inputs[rows])
        np.testing.assert_array_equal(y.numpy(), label[rows])


def test_missing_features_name_the_command_that_computes_them():
    with pytest.raises(FileNotFoundError, match="experiments text --embed"):
        imdb.load("minilm")


def rows(data: tuple[torch.Tensor, ...]) -> list[int]:
    return [int(value) for value in data[1]]


def test_samples_differ_by_seed_have_no_review_twice_and_grow_with_their_size():
    data = torch.zeros(1000, 1), torch.arange(1000)  # each label names its review
    first, other = (rows(imdb.sample(data, 100, seed)) for seed in (0, 1))
    assert len(set(first)) == 100
    assert first != other
    assert rows(imdb.sample(data, 10, 0)) == first[:10]
    assert rows(imdb.sample(data, 1000, 3)) == list(range(1000))


@pytest.mark.parametrize("size", [10, 1000])
def test_reviews_to_tune_by_are_in_no_training_set(size):
    data = torch.zeros(1000, 1), torch.arange(1000)
    train, others = imdb.held_out(data, size, 0)
    assert len(train[1]) == min(size, 500)
    assert len(others[1]) == 500
    assert not set(rows(train)) & set(rows(others))


@pytest.mark.parametrize("size", [10, 1000])
def test_reviews_to_tune_by_are_of_other_films_than_those_to_train_on(size):
    data = torch.zeros(1000, 1), torch.arange(1000)
    films = torch.randint(70, (1000,), generator=torch.Generator().manual_seed(0))
    train, others = imdb.held_out(data, size, 0, films)
    assert not set(films[rows(train)].tolist()) & set(films[rows(others)].tolist())
    assert len(set(rows(train))) == len(train[1]) == min(size, 1000 - len(others[1]))
    assert 500 <= len(set(rows(others))) == len(others[1]) < 550
    if size == 10:
        assert len(set(films[rows(train)].tolist())) > 5, "training reviews are of many films"


def test_neighbouring_numbers_of_a_label_are_one_group(tmp_path):
    write_features(tmp_path, num_each=200)
    with np.load(imdb.path("minilm")) as file:
        kept = {name: file[name] for name in file.files}
    kept["id"] = np.array([f"{number // 2}_7" for number in range(len(kept["labels"]))])
    np.savez(imdb.path("minilm"), **kept)
    found = imdb.load("minilm")
    train = kept["is_train"].astype(bool)
    number = np.arange(len(train))[train] // 2
    for label in (0, 1):
        here = kept["labels"][train] == label
        for group in found.groups[torch.from_numpy(here)].unique():
            numbers = number[here & (found.groups.numpy() == int(group))]
            assert numbers.max() - numbers.min() < imdb.MAX_REVIEWS
        assert not set(found.groups[torch.from_numpy(here)].tolist()) & set(
            found.groups[torch.from_numpy(~here)].tolist()
        )


def test_the_original_archive_has_the_same_reviews_as_the_lines(tmp_path):
    texts = ["bad", "good é", "worse", "better<br />and better"]
    write_reviews(tmp_path, texts)
    lines = imdb.reviews()
    (tmp_path / "imdb" / imdb.JSON).unlink()
    with tarfile.open(tmp_path / "imdb" / imdb.ARCHIVE, "w:gz") as archive:
        for name, text in {
            "README": "about",
            "train/urls_pos.txt": "addresses",
            "train/unsup/9_0.txt": "no label",
            "train/neg/0_1.txt": texts[0],
            "train/pos/1_9.txt": texts[1],
            "test/neg/2_1.txt": texts[2],
            "test/pos/3_9.txt": texts[3],
        }.items():
            content = text.encode()
            member = tarfile.TarInfo(f"aclImdb/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert [review[:3] for review in imdb.reviews()] == [review[:3] for review in lines]
    assert [review.text for review in lines] == [*texts[:3], "better and better"]
    assert [review.label for review in lines] == [0, 1, 0, 1]
    assert [review.is_train for review in lines] == [True, True, False, False]


def test_without_reviews_the_error_says_where_they_are():
    with pytest.raises(FileNotFoundError, match="aclImdb_v1"):
        imdb.reviews()
