"""Models and pages that tests of the report share."""

import pytest

from lastlayer.sklearn import LastLayerClassifier, LastLayerRegressor
from lastlayer.tabular.report import figures
from tests.helpers.estimators import QUICK
from tests.helpers.frames import crowded_table, flats, flowers, wide_table
from tests.helpers.pages import written


@pytest.fixture(scope="session")
def regressor() -> LastLayerRegressor:
    frame = flats(200, 0)
    return LastLayerRegressor(**QUICK).fit(frame.drop(columns="rent"), frame["rent"])


@pytest.fixture(scope="session")
def classifier() -> LastLayerClassifier:
    frame = flowers(200, 0)
    return LastLayerClassifier(**QUICK).fit(frame.drop(columns="kind"), frame["kind"])


@pytest.fixture(scope="session")
def binary() -> LastLayerClassifier:
    frame = flowers(200, 0, 2)
    return LastLayerClassifier(**QUICK).fit(frame.drop(columns="kind"), frame["kind"])


@pytest.fixture(scope="session")
def wide() -> LastLayerRegressor:
    """Of an array, whose columns have no names."""
    frame = wide_table(200)
    return LastLayerRegressor(**QUICK).fit(frame.drop(columns="y").to_numpy(), frame["y"])


@pytest.fixture(scope="session")
def wide_page(wide, tmp_path_factory) -> str:
    return written(wide, wide_table(60), "y", tmp_path_factory.mktemp("wide"))


@pytest.fixture(scope="session")
def crowded_page(tmp_path_factory) -> str:
    train, test = crowded_table(300), crowded_table(100)
    model = LastLayerClassifier("generative", **QUICK | {"max_epochs": 3})
    model.fit(train.drop(columns="label"), train["label"])
    return written(model, test, "label", tmp_path_factory.mktemp("crowded"))


@pytest.fixture(scope="session")
def regression_page(regressor, tmp_path_factory) -> str:
    return written(regressor, flats(120, 1), "rent", tmp_path_factory.mktemp("regression"))


@pytest.fixture(scope="session")
def classification_page(classifier, tmp_path_factory) -> str:
    return written(classifier, flowers(120, 1), "kind", tmp_path_factory.mktemp("classification"))


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """For pages whose figures do not matter."""
    monkeypatch.setattr(figures, "picture", lambda *_: "")
