"""A table as people keep them, from training to the report."""

import copy
import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from lastlayer.tabular.cli.running import run
from lastlayer.tabular.files.codec import dumps, loads
from lastlayer.tabular.files.folder import _digest, load
from tests.helpers.commands import failed, houses, misused

QUICKEST = ["--max-epochs", "2", "--hidden-layers", "4"]


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    """A folder with a messy table, the same numbers written plainly, and a model of the former."""
    path = tmp_path_factory.mktemp("messy")
    frame = houses(60).drop(columns="cheap").fillna(50.0)
    frame["customer_no"] = np.random.default_rng(0).integers(10_000, 99_999, 60)
    frame["day"] = pd.date_range("2020-01-05", periods=60)
    frame.to_csv(path / "plain.csv", index=False)
    frame["price"] = [f"${price:,.2f}" for price in frame["price"]]
    frame["size"] = [f"{size:.1f} m²" for size in frame["size"]]
    frame["day"] = frame["day"].dt.strftime("%d.%m.%Y")
    frame.loc[7, "size"] = "12..3 m²"
    total = pd.DataFrame({"town": ["Total"], "price": ["$99,999,999.00"]})
    pd.concat([frame, total]).to_csv(path / "messy.csv", index=False, float_format="%.0f")
    command = ["fit", str(path / "messy.csv"), "--target", "price", "--model", str(path / "model")]
    assert run([*command, *QUICKEST, "--quiet"]) == 0
    return path


def test_training_names_what_is_in_the_way(messy, tmp_path, capsys):
    command = ["fit", str(messy / "messy.csv"), "--target", "price", *QUICKEST]
    assert run([*command, "--model", str(tmp_path / "model")]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    for part in (
        "town: the last row, 61, has 'Total': it is left out",
        "size: 59 of 60 values are numbers in m²; row 8 has '12..3 m²', which is taken as missing",
        "(DD.MM.YYYY)",
        "customer_no: looks like an identifier: its name, and 60 different integers in 60 rows; "
        "--ignore customer_no leaves it out",
    ):
        assert part in shown


def test_rows_written_otherwise_are_predicted_alike(messy, tmp_path):
    means = []
    for name in ("messy", "plain"):
        to = tmp_path / f"{name}.csv"
        command = ["predict", str(messy / "model"), str(messy / f"{name}.csv"), "-o", str(to)]
        assert run(command) == 0
        means.append(pd.read_csv(to)["mean"].drop(7)[:59])
    np.testing.assert_allclose(means[0], means[1])


def test_inputs_keep_their_form_beside_predictions(messy, tmp_path):
    to = tmp_path / "out.csv"
    command = ["predict", str(messy / "model"), str(messy / "messy.csv"), "-o", str(to)]
    assert run([*command, "--with-inputs"]) == 0
    before, after = ((messy / "messy.csv").read_text(), to.read_text())
    width = len(before.splitlines()[0])
    assert after.splitlines()[0][:width] == before.splitlines()[0]
    for old, new in zip(before.splitlines(), after.splitlines(), strict=True):
        assert new.startswith(f"{old},")


def test_rows_of_training_are_recognised(messy, tmp_path, capsys):
    table, model = str(messy / "messy.csv"), str(messy / "model")
    assert run(["evaluate", model, table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 60  # without the total
    assert run(["evaluate", model, table]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "100% of these rows are equal to rows of training" in shown
    assert "cross-validation: RMSE" in shown
    page, first = tmp_path / "report.html", pd.read_csv(table)["customer_no"].astype(str)
    assert run(["report", model, table, "-o", str(page), "--id", "customer_no"]) == 0
    text = " ".join(page.read_text().split())
    assert "All these rows are equal to rows that the model was trained on." in text
    assert "in cross-validation</dd>" in text
    assert text.count('<th scope="col">customer_no</th>') == 2
    assert any(f"<td>{number[:5]}</td>" in text for number in first)
    assert text.index("Calibration</h2>") < text.index("Data</h2>")
    others = pd.read_csv(messy / "plain.csv").assign(price=lambda frame: frame["price"] + 1)
    others.to_csv(tmp_path / "others.csv", index=False)
    assert run(["report", model, str(tmp_path / "others.csv"), "-o", str(page)]) == 0
    assert "equal to rows that the model was trained on" not in page.read_text()


def test_a_model_without_a_field_says_so(messy, tmp_path, capsys):
    tensors = (messy / "model" / "model.safetensors").read_bytes()
    description = loads((messy / "model" / "model.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(tensors)
    fields = [("about",), ("fitted", "ood_threshold_"), ("fitted", "num_data_"), ("task",)]
    for field in fields:
        changed = copy.deepcopy(description)
        part = changed
        for name in field[:-1]:
            part = part[name]
        del part[field[-1]]
        del changed["digest"]
        changed["digest"] = _digest(changed, tensors)
        (tmp_path / "model.json").write_text(dumps(changed))
        message = failed(capsys, "predict", str(tmp_path), str(messy / "plain.csv"))
        assert field[-1] in message
        assert "train it again" in message
        assert "bug" not in message


def test_extreme_targets_are_refused_with_their_row(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("a,y\n1,2\n2,3\n3,1e200\n4,5\n")
    message = failed(capsys, "fit", str(path), "--target", "y")
    assert "'y' has values up to 1e+200, in row 3" in message
    path.write_text("a,y\n" + "".join(f"{at},{at}e-200\n" for at in range(1, 40)))
    assert "choose other units" in failed(
        capsys, "fit", str(path), "--target", "y", "--model", str(tmp_path / "model"), "--quiet"
    )


def test_dates_that_can_be_mistaken_need_an_option(tmp_path, capsys):
    path, model = tmp_path / "x.csv", tmp_path / "model"
    path.write_text("day,y\n" + "".join(f"0{at % 9 + 1}/02/2020,{at}.5\n" for at in range(30)))
    command = ["fit", str(path), "--target", "y", "--model", str(model)]
    assert "give --day-first or --month-first" in failed(capsys, *command)
    assert run([*command, "--day-first", *QUICKEST, "--quiet"]) == 0
    about = loads((model / "model.json").read_bytes())["about"]
    assert about["formats"]["day"]["pattern"] == "%d/%m/%Y"
    assert load(model).columns_.columns[0].kind == "date"


@pytest.mark.parametrize("command", [["fit", "none.csv", "--target", "y"], ["predict", "m", "x"]])
def test_a_wrong_name_is_refused_before_torch_is_imported(command):
    code = (
        "import sys\nfrom lastlayer.tabular.cli.running import run\n"
        f"code = run({command!r})\nprint(code, 'torch' in sys.modules)"
    )
    started = time.monotonic()
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == ["1", "False"]
    assert "there is no" in result.stderr
    assert time.monotonic() - started < 10  # on a busy machine


def test_roles_name_columns_of_the_file(messy, capsys):
    command = ["report", str(messy / "model"), str(messy / "plain.csv"), "--id", "name"]
    assert "no column 'name'" in failed(capsys, *command)
    assert "--level" in misused(capsys, "predict", "m", "x", "--level", "9")
