"""How hard the splits are: errors of trees."""

import json
from pathlib import Path
from typing import Any

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
    knobs: dict[str, Any] = {"max_iter": 5, "learning_rate": 0.3, "max_leaf_nodes": 4}
    config = splits.Config(datasets=("wine",), num_seeds=2, num_others=1, **knobs)
    record = splits.run(config, tmp_path / "new")
    written = json.loads((tmp_path / "new" / "splits.json").read_text())
    assert written["rmse"] == record["rmse"]
    assert written["versions"]["scikit-learn"]
    for seed, found in enumerate(record["rmse"]["wine"]):
        split = uci.split("wine", seed)
        (inputs, target), (new, expected) = split.development, split.test
        trees = HistGradientBoostingRegressor(**knobs).fit(inputs, target[:, 0])
        error = mean_squared_error(expected, trees.predict(new)) ** 0.5
        assert found == pytest.approx(error, rel=1e-6)


def test_too_few_others_are_refused_before_a_record_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        splits.main(["--output", str(tmp_path), "--others", "1"])
    assert "--others must be at least 2" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
