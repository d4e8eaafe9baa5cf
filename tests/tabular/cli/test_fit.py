"""Training from the command line: what it reads, shows and writes."""

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from lastlayer.sklearn import load
from lastlayer.tabular.cli.running import run
from lastlayer.tabular.cli.saved import SavedModel
from tests.helpers.commands import QUICK_FIT, houses


@pytest.mark.slow
def test_parquet_and_csv_train_the_same_model(folder, tmp_path):
    houses().drop(columns="cheap").to_parquet(tmp_path / "train.parquet")
    options = ["--target", "price", "--model", str(tmp_path / "model"), *QUICK_FIT]
    assert run(["fit", str(tmp_path / "train.parquet"), *options]) == 0
    frame = houses()[["town", "size"]]
    one, two = (load(path / "model").predict(frame) for path in (folder, tmp_path))
    np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_training_shows_columns_and_scores(folder, tmp_path, capsys):
    options = ["--target", "price", "--model", str(tmp_path / "model")]
    assert run(["fit", str(folder / "train.csv"), *options, *QUICK_FIT[:-1]]) == 0
    shown = capsys.readouterr().err
    for part in (
        "120 rows",
        "regression of price",
        "category",
        "Bonn, Ulm",
        "cross-validation: RMSE",
    ):
        assert part in " ".join(shown.split())


@pytest.mark.slow
def test_a_head_for_classification_has_no_effect_on_regression_and_says_so(
    folder, tmp_path, capsys
):
    command = ["fit", str(folder / "train.csv"), "--target", "price", "--head", "generative"]
    assert run([*command, "--model", str(tmp_path / "model"), *QUICK_FIT[:-1]]) == 0
    assert "--head generative is for classification" in capsys.readouterr().err


@pytest.mark.slow
def test_columns_can_be_ignored_and_rows_weighed(folder, tmp_path):
    frame = houses()
    frame["count"] = 2
    frame.to_csv(tmp_path / "train.csv", index=False)
    options = ["--target", "price", "--ignore", "cheap", "--weight", "count"]
    options += ["--model", str(tmp_path / "model"), *QUICK_FIT]
    assert run(["fit", str(tmp_path / "train.csv"), *options]) == 0
    model = load(tmp_path / "model")
    assert model.feature_names_in_.tolist() == ["town", "size"]
    assert model.num_data_ == 240


@pytest.mark.slow
def test_names_with_brackets_are_shown_as_they_are(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = houses(40).drop(columns="cheap").rename(columns={"price": "price [eur]"})
    frame.to_csv("[new].csv", index=False)
    command = ["fit", "[new].csv", "--target", "price [eur]", "--model", "[m]", *QUICK_FIT[:-1]]
    assert run(command) == 0
    shown = capsys.readouterr().err
    assert "[new].csv: 40 rows" in shown
    assert "regression of price [eur]: " in shown
    assert "of price [eur]" in shown
    assert "[m] written" in shown


@pytest.mark.slow
def test_every_kind_of_column_is_read_again_as_it_was(tmp_path, capsys):
    """Truth values, numbers, dates with and without a zone, and text with blanks around it."""
    random = np.random.default_rng(0)
    size = random.uniform(20, 200, 60)
    frame = pd.DataFrame(
        {
            "new": random.random(60) < 0.5,
            "size": size,
            "day": [f"2024-03-{1 + at % 28:02d}" for at in range(60)],
            "moment": [f"2024-03-01T{at % 24:02d}:00:00Z" for at in range(60)],
            "town": random.choice(["Ulm", " Ulm", "Bonn ", "NA", " NA"], 60),
            "price": 3 * size,
        }
    )
    table, model = str(tmp_path / "train.csv"), str(tmp_path / "model")
    frame.to_csv(table, index=False)
    assert run(["fit", table, "--target", "price", "--model", model, *QUICK_FIT]) == 0
    columns = {column.name: column for column in SavedModel(Path(model)).estimator.columns_.columns}
    kinds = {"new": "number", "size": "number", "day": "date", "moment": "date", "town": "category"}
    assert {name: column.kind for name, column in columns.items()} == kinds
    assert sorted(columns["town"].levels) == ["Bonn", "Ulm"]
    assert run(["evaluate", model, table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ((True, False), ["false", "true"]),
        (("1.0", "0.0"), ["0", "1"]),
        (("1000001", "1000002"), ["1000001", "1000002"]),
        (("0.1234567", "0.1234568"), ["0.1234567", "0.1234568"]),
        (("yes", "no "), ["no", "yes"]),
    ],
)
def test_classes_are_the_same_in_training_and_after(tmp_path, capsys, values, classes):
    frame = houses(60)[["town", "size"]]
    frame["flag"] = np.where(frame["size"] > 100, *values)
    frame = frame.dropna()
    table, model = str(tmp_path / "train.csv"), str(tmp_path / "model")
    frame.to_csv(table, index=False)
    assert run(["fit", table, "--target", "flag", "--model", model, *QUICK_FIT]) == 0
    assert load(model).classes_.tolist() == classes
    assert run(["evaluate", model, table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.7
    page = tmp_path / "report.html"
    assert run(["report", model, table, "-o", str(page)]) == 0
    assert "have no observed" not in page.read_text()


@pytest.mark.slow
def test_decimal_classes_are_the_same_in_csv(tmp_path, capsys):
    price = [Decimal("0.00"), Decimal("1.50")] * 20
    table = pa.table({"a": list(range(40)), "price": pa.array(price, pa.decimal128(10, 2))})
    pq, path, model = (str(tmp_path / name) for name in ("x.parquet", "x.csv", "model"))
    pa.parquet.write_table(table, pq)
    table.to_pandas().to_csv(path, index=False)
    assert run(["fit", pq, "--target", "price", "--model", model, *QUICK_FIT]) == 0
    assert run(["evaluate", model, path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 40


@pytest.mark.slow
def test_row_labels_are_ignored(tmp_path, capsys):
    table, model = str(tmp_path / "train.csv"), str(tmp_path / "model")
    houses(40).drop(columns="cheap").to_csv(table)
    assert run(["fit", table, "--target", "price", "--model", model, *QUICK_FIT[:-1]]) == 0
    assert "first column has no name" in capsys.readouterr().err
    assert [column.name for column in load(model).columns_.columns] == ["town", "size"]
    assert run(["evaluate", model, table, "--json"]) == 0
    pd.read_csv(table).to_csv(table, index=False)  # "Unnamed: 0"
    assert run(["fit", table, "--target", "price", "--model", model, *QUICK_FIT]) == 0
    assert [column.name for column in load(model).columns_.columns] == ["town", "size"]


@pytest.mark.slow
def test_long_integers_of_parquet_are_the_nearest_numbers(tmp_path, capsys):
    at = np.arange(40)
    whole = {"id": 2**53 + 1 + at**2, "count": np.full(40, 2**53 + 1), "y": 2**60 + 2**55 * at + 1}
    pq, path = tmp_path / "x.parquet", tmp_path / "x.csv"
    pa.parquet.write_table(pa.table(whole), pq)
    pd.DataFrame(whole).to_csv(path, index=False)
    found = []
    for table in (str(pq), str(path)):
        model, to = str(tmp_path / "model"), str(tmp_path / "out.csv")
        options = ["--target", "y", "--weight", "count", "--model", model, *QUICK_FIT]
        assert run(["fit", table, *options]) == 0
        assert run(["predict", model, table, "-o", to]) == 0
        assert run(["evaluate", model, table, "--json"]) == 0
        found.append((pd.read_csv(to)["mean"].tolist(), json.loads(capsys.readouterr().out)))
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_target_that_is_infinite_is_missing_everywhere(folder, tmp_path, capsys):
    frame = houses().drop(columns="cheap")
    frame.loc[5, "price"] = np.inf
    table, model = str(tmp_path / "x.csv"), str(tmp_path / "model")
    frame.to_csv(table, index=False)
    command = ["fit", table, "--target", "price", "--model", model, *QUICK_FIT[:-1]]
    assert run(command) == 0
    assert "dropped 1 row without a finite price" in capsys.readouterr().err
    assert run(["evaluate", model, table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 119
    page = tmp_path / "report.html"
    assert run(["report", model, table, "-o", str(page)]) == 0
    assert "1 of 120 rows" in " ".join(page.read_text().split())
    frame.loc[6, "price"] = np.nan
    frame.to_csv(table, index=False)
    assert run(command) == 0
    assert "dropped 2 rows without a finite price" in capsys.readouterr().err
