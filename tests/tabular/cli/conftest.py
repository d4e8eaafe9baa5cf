"""Models that tests of the command line share."""

from pathlib import Path
from typing import Any

import pytest

from lastlayer.tabular.cli.running import run
from tests.helpers.commands import QUICK_FIT, houses


@pytest.fixture(scope="session")
def folder(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("cli")
    frame = houses()
    frame.drop(columns="cheap").to_csv(path / "train.csv", index=False)
    frame.drop(columns="price").to_csv(path / "classes.csv", index=False)
    train = str(path / "train.csv")
    model = ["--model", str(path / "model")]
    assert run(["fit", train, "--target", "price", *model, *QUICK_FIT]) == 0
    classes = [str(path / "classes.csv"), "--target", "cheap"]
    assert run(["fit", *classes, "--model", str(path / "classifier"), *QUICK_FIT]) == 0
    return path
