"""Large data on a Ray cluster of two workers: streams, and predictions for tables."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from lastlayer.streams import RayStream
from lastlayer.tabular.cli.running import run
from tests.helpers.commands import QUICK_FIT

ray = pytest.importorskip("ray", reason="install lastlayer[ray]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),  # its own settings
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {"env_vars": {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a Parquet file of several parts with levels and values that were not seen."""
    folder = tmp_path_factory.mktemp("tables")
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"size": random.normal(size=400), "town": random.choice(["a", "b"], 400)})
    frame["price"] = frame["size"] + (frame["town"] == "a") + 0.1 * random.normal(size=400)
    frame[:60].to_csv(folder / "train.csv", index=False)
    command = ["fit", str(folder / "train.csv"), "--target", "price", *QUICK_FIT]
    assert run([*command, "--model", str(folder / "model")]) == 0
    frame.loc[7, "town"], frame.loc[399, "town"], frame.loc[200, "size"] = "c", "d", 1e300
    frame.drop(columns="price").to_parquet(folder / "large.parquet", row_group_size=50)
    return folder


def predict(folder: Path, to: Path, executor: str, *options: str) -> int:
    command = ["predict", str(folder / "model"), str(folder / "large.parquet"), "-o", str(to)]
    return run([*command, "--executor", executor, *options])


@pytest.mark.usefixtures("_cluster")
def test_workers_predict_every_row_as_one_process_does(
    tables: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "lastlayer.tabular.files.parquet_files.MAX_ROWS", 30
    )  # more parts than wait
    shown = {}
    for executor in ("local", "ray"):
        assert predict(tables, tmp_path / f"{executor}.parquet", executor, "--with-inputs") == 0
        shown[executor] = "".join(capsys.readouterr().err.replace(executor, "").split())
    assert "levelsthatwerenotintraining:c,d" in shown["ray"]
    assert shown["ray"] == shown["local"]
    local, together = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("local", "ray"))
    assert len(together) == 400
    pd.testing.assert_frame_equal(together, local)


@pytest.mark.usefixtures("_cluster")
def test_an_error_of_a_worker_is_one_line(tables: Path, tmp_path: Path, capsys: Any) -> None:
    frame = pd.read_parquet(tables / "large.parquet")
    frame.loc[3, "size"] = np.inf
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "model").symlink_to(tables / "model")
    frame.to_parquet(folder / "large.parquet")
    assert predict(folder, tmp_path / "out.csv", "ray") == 1
    message = capsys.readouterr().err
    assert "'size' holds infinity" in message
    assert "Traceback" not in message
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.usefixtures("_cluster")
def test_a_data_set_of_ray_is_read_in_batches() -> None:
    torch.set_default_dtype(torch.float32)
    x = np.random.default_rng(0).normal(size=(205, 3)).astype(np.float32)
    rows = [{"x": values, "y": values[0]} for values in x]
    stream = RayStream(ray.data.from_items(rows), "x", "y", batch_size=32)
    for _ in range(2):
        inputs, target = (torch.cat(parts) for parts in zip(*stream, strict=True))
        order, expected = target.argsort(), torch.from_numpy(x[:, 0]).argsort()
        assert_close(inputs[order], torch.from_numpy(x)[expected])
