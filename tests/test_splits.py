"""How hard the splits are: errors of trees."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rich", reason="the experiments show progress; install lastlayer[experiments]")

from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_squared_error

from experiments import splits
from experiments.datasets import uci


@pytest.fixture
def wine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with noise, called wine."""
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "uci").mkdir(parents=True)
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 3))
    y = np.sin(x[:, 0]) + 0.3 * random.normal(size=200)
    path = tmp_path / "data" / "uci" / "wine.csv"
    np.savetxt(path, np.column_stack([x, y]), delimiter=",", header="a,b,c,y")


@pytest.mark.usefixtures("wine")
def test_trees_learn_from_development_data_and_err_on_test_data(tmp_path: Path):
    config = splits.Config(datasets=("wine",), num_seeds=2, num_others=1, max_iter=5)
    record = splits.run(config, tmp_path / "new")
    written = json.loads((tmp_path / "new" / "splits.json").read_text())
    assert written["rmse"] == record["rmse"]
    assert written["versions"]["scikit-learn"]
    for seed, found in enumerate(record["rmse"]["wine"]):
        split = uci.split("wine", seed)
        (inputs, target), (new, expected) = split.development, split.test
        trees = HistGradientBoostingRegressor(max_iter=5).fit(inputs, target[:, 0])
        error = mean_squared_error(expected, trees.predict(new)) ** 0.5
        assert found == pytest.approx(error, rel=1e-6)
