"""Saved models predict the same, are replaced in one step, and say when they are damaged."""

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

from lastlayer.sklearn import LastLayerRegressor, load, save
from lastlayer.tabular.files.folder import open_folder
from tests.helpers.estimators import QUICK
from tests.helpers.prices import table


def test_a_saved_model_predicts_the_same(
    tmp_path, regressor, classifier, regression, classification
):
    for model, X in ((regressor, regression[0]), (classifier, classification[0])):
        folder = tmp_path / type(model).__name__
        save(model, folder, about={"made": "here"})
        save(model, folder)  # again, over the first
        again = load(folder)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_array_equal(again.ood_score(X), model.ood_score(X))
        assert again.ood_threshold_ == model.ood_threshold_
        assert again.get_params() == model.get_params()
        assert {path.name for path in folder.iterdir()} == {"model.json", "model.safetensors"}
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_loaded_model_learns_on(tmp_path, regression):
    X, y = regression
    model = LastLayerRegressor(**QUICK).fit(X[:200], y[:200])
    save(model, tmp_path / "model")
    again = load(tmp_path / "model").partial_fit(X[200:], y[200:])
    np.testing.assert_allclose(again.predict(X), model.partial_fit(X[200:], y[200:]).predict(X))


def test_frames_are_read_as_before(tmp_path):
    values, price = table()
    model = LastLayerRegressor(**QUICK).fit(pd.DataFrame(values), price)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(
        again.predict(pl.DataFrame(values)), model.predict(pd.DataFrame(values))
    )


def test_a_folder_that_is_not_a_model_is_left_alone(tmp_path, regressor):
    (tmp_path / "letters.txt").write_text("dear")
    for other in ("{}", '{"format": 1}'):
        with pytest.raises(FileExistsError, match="holds more than a model"):
            save(regressor, tmp_path)
        assert (tmp_path / "letters.txt").read_text() == "dear"
        (tmp_path / "model.json").write_text(other)
    (tmp_path / "letters.txt").unlink()
    with pytest.raises(FileExistsError, match="holds more than a model"):
        save(regressor, tmp_path)


def test_an_interruption_leaves_the_older_model(tmp_path, regressor, monkeypatch):
    folder = tmp_path / "model"
    save(regressor, folder)
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Any:
        if target == folder and not self.name.endswith("-old"):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(regressor, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    load(folder)


def test_a_link_to_a_model_stays_one(tmp_path, regressor):
    (tmp_path / "link").symlink_to(tmp_path / "model")
    save(regressor, tmp_path / "link")
    save(regressor, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "model"]


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_model_that_may_not_be_read_is_not_called_damaged(tmp_path, regressor, monkeypatch, name):
    save(regressor, tmp_path / "model")
    plain = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return plain(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(PermissionError, match=rf"cannot read .*{name}: Permission denied; permit"):
        load(tmp_path / "model")


def test_damaged_and_newer_models_say_so(tmp_path, regressor):
    with pytest.raises(NotFittedError):
        save(LastLayerRegressor(), tmp_path / "model")
    with pytest.raises(FileNotFoundError, match="no model folder"):
        load(tmp_path / "model")
    folder = tmp_path / "model"
    save(regressor, folder)
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(description | {"format": 99, "lastlayer": "9.0"}))
    with pytest.raises(ValueError, match=r"written by lastlayer 9\.0.*upgrade"):
        load(folder)
    (folder / "model.json").write_text(json.dumps(description)[:-20])
    with pytest.raises(ValueError, match="is not a model"):
        load(folder)
    (folder / "model.json").write_text(json.dumps(description))
    tensors = (folder / "model.safetensors").read_bytes()
    flipped = tensors[:-3] + bytes([tensors[-3] ^ 1]) + tensors[-2:]
    for damaged in (tensors[:-8], flipped):
        (folder / "model.safetensors").write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"is damaged: model\.safetensors is missing; train"):
        load(folder)
    (folder / "model.safetensors").write_bytes(tensors)
    load(folder)
    changes: list[Any] = [{"about": None}, {"fitted": {}}, {"columns": []}, {"format": 1e999}]
    for change in changes:
        (folder / "model.json").write_text(json.dumps(description | change))
        with pytest.raises(ValueError, match=r"damaged|is not a model"):
            load(folder)


@pytest.mark.parametrize(("version", "remedy"), [(2, "train it again"), (4, "upgrade lastlayer")])
def test_models_of_other_formats_are_refused(tmp_path, regressor, version, remedy):
    folder = tmp_path / "model"
    save(regressor, folder)
    description = json.loads((folder / "model.json").read_text())
    other = description | {"format": version, "lastlayer": "0.0"}
    (folder / "model.json").write_text(json.dumps(other))
    expected = rf"written by lastlayer 0\.0 in format {version}, and .* reads format 3; {remedy}"
    with pytest.raises(ValueError, match=expected):
        load(folder)
    save(regressor, folder)  # in its place
    load(folder)


def test_notes_about_a_model_are_kept_as_they_were(tmp_path, regressor):
    about = {"target": "y", "array": [1], "tuple": (1, 2.5), "r2": float("inf"), "none": None}
    save(regressor, tmp_path / "model", about)
    assert open_folder(tmp_path / "model").about == about


def test_notes_that_json_cannot_hold_are_refused_before_anything_is_written(tmp_path, regressor):
    with pytest.raises(TypeError, match="of type set cannot be written as JSON"):
        save(regressor, tmp_path / "model", {"towns": {"Ulm"}})
    assert list(tmp_path.iterdir()) == []
