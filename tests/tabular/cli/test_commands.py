"""The other commands, and the command line as a program."""

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from lastlayer.sklearn import LastLayerRegressor, load
from lastlayer.tabular import cli
from lastlayer.tabular.cli.running import run
from lastlayer.tabular.columns import Columns
from tests.helpers.commands import QUICK_FIT, failed, houses, listing


@pytest.mark.slow
def test_a_report_and_an_onnx_file_are_written(folder, tmp_path, capsys):
    model, table = str(folder / "model"), str(folder / "train.csv")
    assert run(["report", model, table, "-o", str(tmp_path / "report.html")]) == 0
    assert "price" in (tmp_path / "report.html").read_text()
    assert run(["export", model, "--onnx", "-o", str(tmp_path / "model.onnx")]) == 0
    assert "largest differences of its outputs" in capsys.readouterr().err
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    estimator, frame = load(folder / "model"), houses()[["town", "size"]]
    (mean,) = session.run(["mean"], {"codes": estimator.columns_.codes(frame)})
    np.testing.assert_allclose(mean, estimator.predict(frame))


def quickly(kind: Any) -> Any:
    """Training of a few epochs only."""
    plain = kind._crossfit

    def trained(self: Any, data: Any, seed: int) -> Any:
        self.max_epochs, self.num_folds = 8, 2
        return plain(self, data, seed)

    return trained


@pytest.mark.slow
def test_the_demo_trains_evaluates_and_reports(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(LastLayerRegressor, "_crossfit", quickly(LastLayerRegressor))
    (tmp_path / "train.csv").write_text("mine")
    assert "train.csv already exists" in failed(capsys, "demo", "--folder", str(tmp_path))
    assert (tmp_path / "train.csv").read_text() == "mine"
    (tmp_path / "train.csv").unlink()
    assert run(["demo", "--folder", str(tmp_path)]) == 0
    assert listing(tmp_path) == ["model", "report.html", "test.csv", "train.csv"]
    assert "root mean squared error" in capsys.readouterr().out
    train, test = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("train", "test"))
    assert (len(train), len(test)) == (258, 86)


def test_it_runs_as_a_program():
    shown = subprocess.run(
        [sys.executable, "-m", "lastlayer", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for command in ("fit", "predict", "evaluate", "report", "export", "demo"):
        assert command in shown


def test_help_does_not_wait_for_what_it_does_not_need():
    code = (
        "import sys; from lastlayer.tabular.cli.running import run; run(['fit', '--help']); "
        "assert not {'torch', 'pyarrow', 'sklearn', 'torchmetrics'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_embedded_table_is_whole():
    path = Path(cli.__file__).with_name("penguins.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 344
    assert {row["species"] for row in rows} == {"Adelie", "Chinstrap", "Gentoo"}


@pytest.mark.slow
def test_every_command_reads_the_model_once(folder, tmp_path, monkeypatch):
    model, table = str(folder / "model"), str(folder / "train.csv")
    commands = [
        ["predict", model, table, "-o", str(tmp_path / "out.csv")],
        ["evaluate", model, table],
        ["report", model, table, "-o", str(tmp_path / "report.html")],
        ["export", model, "--onnx", "-o", str(tmp_path / "model.onnx")],
    ]
    plain, names = Path.read_bytes, []

    def read_bytes(path: Path) -> bytes:
        names.append(path.name)
        return plain(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    for command in commands:
        names.clear()
        assert run(command) == 0
        assert names.count("model.json") == names.count("model.safetensors") == 1


@pytest.mark.slow
def test_training_infers_columns_once(folder, tmp_path, monkeypatch, capsys):
    infer, tables = Columns.of, []

    def of(table: Any, weight: Any = None) -> Columns:
        tables.append(table)
        return infer(table, weight)

    monkeypatch.setattr(Columns, "of", of)
    command = ["fit", str(folder / "train.csv"), "--target", "price", *QUICK_FIT[:-1]]
    assert run([*command, "--model", str(tmp_path / "model")]) == 0
    assert len(tables) == 1
    assert "category" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["fit", "predict", "evaluate", "report", "export", "demo", "doctor"]
)
def test_help_ends_with_an_example(command, capsys):
    assert run([command, "--help"]) == 0
    shown = capsys.readouterr().out.split()
    assert " ".join(shown[shown.index("Example:") :]).startswith(f"Example: lastlayer {command}")


@pytest.mark.slow
def test_a_shell_completes_the_names_of_commands():
    code = "import sys; sys.argv = ['lastlayer']; from lastlayer.tabular.cli import main; main()"
    asked = {
        "_LASTLAYER_COMPLETE": "complete_bash",
        "COMP_WORDS": "lastlayer pre",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True
    )
    assert done.stdout.split() == ["predict"]
