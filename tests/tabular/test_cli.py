"""The command line: what it writes, what it says, and what it leaves alone."""

import bz2
import csv
import errno
import gzip
import json
import lzma
import math
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from rich.console import Console

from lastlayer import cli
from lastlayer.sklearn import LastLayerRegressor, load
from lastlayer.tabular.cli import app, files
from lastlayer.tabular.cli.app import run
from lastlayer.tabular.cli.files import TableFile, Writer
from lastlayer.tabular.cli.models import Model, infer_task
from lastlayer.tabular.cli.shown import columns_table
from lastlayer.tabular.columns import Columns

QUICK = ["--max-epochs", "64", "--hidden-layers", "8", "--quiet"]


def houses(rows: int = 120) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    town = generator.choice(["Ulm", "Bonn"], rows)
    size = generator.uniform(20, 200, rows).round(1)
    price = (3 * size + 100 * (town == "Bonn") + 5 * generator.standard_normal(rows)).round(2)
    frame = pd.DataFrame({"town": town, "size": size, "price": price})
    frame.loc[::17, "size"] = np.nan
    frame["cheap"] = np.where(price < np.median(price), "yes", "no")
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("cli")
    frame = houses()
    frame.drop(columns="cheap").to_csv(path / "train.csv", index=False)
    frame.drop(columns="price").to_csv(path / "classes.csv", index=False)
    train = str(path / "train.csv")
    model = ["--model", str(path / "model")]
    assert run(["fit", train, "--target", "price", *model, *QUICK]) == 0
    classes = [str(path / "classes.csv"), "--target", "cheap"]
    assert run(["fit", *classes, "--model", str(path / "classifier"), *QUICK]) == 0
    return path


def listing(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


# ------------------------------------------------------------------------------ what it does


def test_predictions_are_those_of_the_estimator(folder, tmp_path):
    to = tmp_path / "out.csv"
    command = ["predict", str(folder / "model"), str(folder / "train.csv"), "-o", str(to)]
    assert run([*command, "--level", "0.8"]) == 0
    found, model, frame = pd.read_csv(to), load(folder / "model"), houses()[["town", "size"]]
    mean, stddev = model.predict(frame, return_std=True)
    np.testing.assert_allclose(found["mean"], mean)
    np.testing.assert_allclose(found["stddev"], stddev)
    np.testing.assert_allclose(found[["lower", "upper"]], model.predict_interval(frame, 0.8))
    np.testing.assert_allclose(found["ood_score"], model.ood_score(frame))
    np.testing.assert_array_equal(found["unusual"], model.ood_score(frame) > model.ood_threshold_)


def test_classes_come_with_their_probabilities(folder, tmp_path):
    to = tmp_path / "out.parquet"
    table = str(folder / "classes.csv")
    assert run(["predict", str(folder / "classifier"), table, "-o", str(to), "--with-inputs"]) == 0
    found, model, frame = pd.read_parquet(to), load(folder / "classifier"), houses()
    probs = model.predict_proba(frame[["town", "size"]])
    np.testing.assert_allclose(found[["probability_no", "probability_yes"]], probs)
    assert found["prediction"].tolist() == model.predict(frame[["town", "size"]]).tolist()
    assert found["town"].tolist() == frame["town"].tolist()


def test_measures_are_those_of_numpy(folder, capsys):
    model = str(folder / "model")
    assert run(["evaluate", model, str(folder / "train.csv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    frame, estimator = houses(), load(folder / "model")
    mean = estimator.predict(frame[["town", "size"]])
    lower, upper = estimator.predict_interval(frame[["town", "size"]]).T
    price = frame["price"].to_numpy()
    assert found["rows"] == 120
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((mean - price) ** 2)))
    assert found["r2"] == pytest.approx(estimator.score(frame[["town", "size"]], price))
    assert found["coverage_0.9"] == pytest.approx(np.mean((lower <= price) & (price <= upper)))
    assert found["width_0.9"] == pytest.approx(np.mean(upper - lower))
    assert run(["evaluate", str(folder / "classifier"), str(folder / "classes.csv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    classifier = load(folder / "classifier")
    accuracy = classifier.score(frame[["town", "size"]], frame["cheap"].to_numpy())
    assert found["accuracy"] == pytest.approx(accuracy)


def test_a_file_in_many_parts_is_predicted_as_in_one(folder, tmp_path, monkeypatch):
    command = ["predict", str(folder / "model"), str(folder / "train.csv"), "-o"]
    assert run([*command, str(tmp_path / "whole.csv")]) == 0
    monkeypatch.setattr(files, "BYTES_TOGETHER", 500)
    assert len(list(TableFile(folder / "train.csv").parts({}))) > 3
    assert run([*command, str(tmp_path / "parts.csv")]) == 0
    whole, parts = (pd.read_csv(tmp_path / name) for name in ("whole.csv", "parts.csv"))
    pd.testing.assert_frame_equal(whole, parts)


def test_parquet_and_csv_train_the_same_model(folder, tmp_path):
    houses().drop(columns="cheap").to_parquet(tmp_path / "train.parquet")
    options = ["--target", "price", "--model", str(tmp_path / "model"), *QUICK]
    assert run(["fit", str(tmp_path / "train.parquet"), *options]) == 0
    frame = houses()[["town", "size"]]
    one, two = (load(path / "model").predict(frame) for path in (folder, tmp_path))
    np.testing.assert_array_equal(one, two)


def test_training_says_what_it_found_and_how_good_it_is(folder, tmp_path, capsys):
    options = ["--target", "price", "--model", str(tmp_path / "model")]
    assert run(["fit", str(folder / "train.csv"), *options, *QUICK[:-1]]) == 0
    shown = capsys.readouterr().err
    for part in ("120 rows", "regression of price", "category", "Bonn, Ulm", "on rows held out"):
        assert part in " ".join(shown.split())


@pytest.mark.slow
def test_a_last_layer_of_classes_is_not_asked_of_numbers_in_silence(folder, tmp_path, capsys):
    command = ["fit", str(folder / "train.csv"), "--target", "price", "--head", "generative"]
    assert run([*command, "--model", str(tmp_path / "model"), *QUICK[:-1]]) == 0
    assert "--head generative is for classes" in capsys.readouterr().err


def test_columns_can_be_ignored_and_rows_weighed(folder, tmp_path):
    frame = houses()
    frame["count"] = 2
    frame.to_csv(tmp_path / "train.csv", index=False)
    options = ["--target", "price", "--ignore", "cheap", "--weight", "count"]
    options += ["--model", str(tmp_path / "model"), *QUICK]
    assert run(["fit", str(tmp_path / "train.csv"), *options]) == 0
    model = load(tmp_path / "model")
    assert model.feature_names_in_.tolist() == ["town", "size"]
    assert model.num_data_ == 240


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([1.5, 2.5, 3.5], "regression"),
        ([1, 2, 3], "regression"),
        ([0, 1, 1], "classification"),
        ([True, False, None], "classification"),
        (["a", "b", None], "classification"),
    ],
)
def test_the_task_follows_from_the_target(values, task):
    assert infer_task(pa.chunked_array([values]))[0] == task


@pytest.mark.slow
def test_a_report_and_an_onnx_file_are_written(folder, tmp_path, capsys):
    model, table = str(folder / "model"), str(folder / "train.csv")
    assert run(["report", model, table, "-o", str(tmp_path / "report.html")]) == 0
    assert "price" in (tmp_path / "report.html").read_text()
    assert run(["export", model, "--onnx", "-o", str(tmp_path / "model.onnx")]) == 0
    assert "differ from torch's at most by" in capsys.readouterr().err
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    estimator, frame = load(folder / "model"), houses()[["town", "size"]]
    (mean,) = session.run(["mean"], {"codes": estimator.columns_.codes(frame)})
    np.testing.assert_allclose(mean, estimator.predict(frame))


def test_the_demonstration_does_all_of_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(LastLayerRegressor, "_crossfit", quickly(LastLayerRegressor))
    (tmp_path / "train.csv").write_text("mine")
    assert "train.csv is there already" in failed(capsys, "demo", "--folder", str(tmp_path))
    assert (tmp_path / "train.csv").read_text() == "mine"
    (tmp_path / "train.csv").unlink()
    assert run(["demo", "--folder", str(tmp_path)]) == 0
    assert listing(tmp_path) == ["model", "report.html", "test.csv", "train.csv"]
    assert "root mean squared error" in capsys.readouterr().out
    train, test = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("train", "test"))
    assert (len(train), len(test)) == (258, 86)


def quickly(kind: Any) -> Any:
    """Training of a few epochs only."""
    plain = kind._crossfit

    def trained(self: Any, data: Any) -> Any:
        self.max_epochs, self.num_folds = 8, 2
        return plain(self, data)

    return trained


# ---------------------------------------------------------------------------- files of all kinds


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_out(tmp_path, delimiter):
    path = tmp_path / "x.csv"
    houses().to_csv(path, index=False, sep=delimiter)
    table = TableFile(path).read()
    assert table.column_names == ["town", "size", "price", "cheap"]
    np.testing.assert_array_equal(table["price"], houses()["price"])


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.csv.bz2", "x.csv.xz"])
def test_compressed_files_are_read_whatever_they_are_called(tmp_path, name):
    plain = b"a;b\n1,5;x\n-2,25;y\n"
    path = tmp_path / name
    for content in (plain, gzip.compress(plain), bz2.compress(plain), pa.compress(plain, "zstd")):
        path.write_bytes(bytes(content))
        assert TableFile(path).read().to_pylist() == [{"a": 1.5, "b": "x"}, {"a": -2.25, "b": "y"}]


def test_text_may_begin_as_other_files_do(tmp_path):
    path = tmp_path / "x.csv"
    for name in ("PK", "BZh9", "PAR"):
        path.write_text(f"{name},b\n1,2\n")
        assert TableFile(path).columns == [name, "b"]


def test_a_first_line_for_excel_names_the_delimiter(tmp_path):
    path = tmp_path / "x.csv"
    for first, delimiter in (("sep=;", ";"), ("\ufeffsep=:", ":"), ('"sep=\t"', "\t")):
        path.write_text(f"{first}\na{delimiter}b\n1{delimiter}2,5\n", encoding="utf-8")
        assert TableFile(path).read().to_pylist() == [{"a": 1, "b": 2.5}]


def test_decimal_commas_are_numbers_where_commas_do_not_separate(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a;b\n1,5;x\n-2,25;y\n")
    assert TableFile(path).read()["a"].to_pylist() == [1.5, -2.25]
    path.write_text('a,b\n"0,500",x\n"2,250",y\n')  # not thousands; left as text
    assert TableFile(path).read()["a"].to_pylist() == ["0,500", "2,250"]


def test_values_are_numbers_truths_dates_text_or_missing(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(
        '\ufeffn,t,d,s,e\n1e3, true,2020-01-02,a b,\n?,FALSE,,"c,\nd",NA\n', encoding="utf-8"
    )
    table = TableFile(path).read()
    assert table["n"].to_pylist() == [1000.0, None]
    assert table["t"].to_pylist() == [True, False]
    assert str(table["d"][0]) == "2020-01-02 00:00:00"
    assert table["s"].to_pylist() == ["a b", "c,\nd"]
    assert table["e"].null_count == 2


# ------------------------------------------------------------------------------ what goes wrong


def failed(capsys, *arguments: str) -> str:
    """One line of error, and nothing of Python's."""
    code = run(list(arguments))
    message = capsys.readouterr().err.strip()
    assert code == 1
    assert message.startswith("lastlayer: ")
    assert "\n" not in message
    assert "Traceback" not in message
    return str(message)


def misused(capsys, *arguments: str) -> str:
    assert run(list(arguments)) == 2
    return str(capsys.readouterr().err)


def test_a_missing_target_names_what_there_is(folder, capsys, tmp_path):
    model = str(tmp_path / "model")
    train = str(folder / "train.csv")
    message = failed(capsys, "fit", train, "--target", "prize", "--model", model)
    assert "no column 'prize'; it has 'town', 'size', 'price'" in message
    assert listing(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,price\n", "has a header, but no rows"),
        ("a,price\n1,2\n4,5,6\n", "row 2 has 3 values instead of 2: '4,5,6'; correct it"),
        ("sep=;\na;price\n1;2\n4\n", "row 2 has 1 value instead of 2: '4'; correct it"),
        ('a,b,price\n1,"2,3\n4,5,6\n', "a quote in row 1 is not closed: '1,\"2,3'"),
        ("a,price\n1,2,3\n4,5,6\n", "first line must hold the names of all columns, but 'a,price'"),
        ("# new\na;price\n1,5;2\n", "first line must hold the names of all columns, but '# new'"),
        ("a,price\n1,\n2,\n", "no row has a value of 'price'"),
        ("a,a,price\n1,2,3\n", "2 columns named 'a'"),
        ("a,price\n1,5\n1,6\n", "no column to learn from: 'a' is always the same"),
        ("a,price\n1,2\n", "just one row has a target"),
        ("a,price\n1,2\n2,2\n", "the target is always 2: there is nothing to predict"),
        (" \n\n", "nothing but white space"),
        ("a,price\n1,inf\n2,inf\n", "no row has a value of 'price'"),
        ("a,price\ninf,1\n2,3\n3,4\n", "'a' holds infinity"),
    ],
)
def test_files_that_cannot_be_learnt_from_say_why(tmp_path, capsys, text, message):
    path = tmp_path / "train.csv"
    path.write_text(text)
    options = ("--target", "price", "--model", str(tmp_path / "model"), "--quiet")
    assert message in failed(capsys, "fit", str(path), *options)
    assert listing(tmp_path) == ["train.csv"]


def test_a_wrong_delimiter_is_suspected(tmp_path, capsys):
    path = tmp_path / "train.csv"
    path.write_text("a:price\n1:2\n3:4\n")
    message = failed(capsys, "fit", str(path), "--target", "price")
    assert "is ',' its delimiter? Name another by --delimiter" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lzma.compress(b"a,price\n1,2\n"), "is compressed by xz; unpack it"),
        (gzip.compress(b"a,price\n1,2\n", mtime=0)[:-9], "is damaged: Truncated compressed stream"),
        ("a,price\n1,2\n".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        (b"PK\x03\x04", "is a spreadsheet or an archive; save its table as CSV"),
        ("Stra\u00dfe,price\n1,2\n".encode("latin-1"), "not UTF-8"),
    ],
)
def test_files_of_other_kinds_say_what_they_are(tmp_path, capsys, content, message):
    path = tmp_path / "train.csv"
    path.write_bytes(content)
    assert message in failed(capsys, "fit", str(path), "--target", "price")


def test_predictions_are_not_written_as_what_they_are_not(folder, tmp_path, capsys):
    table, to = str(folder / "train.csv"), str(tmp_path / "out.xlsx")
    message = failed(capsys, "predict", str(folder / "model"), table, "-o", to)
    assert "must end in .csv or .parquet" in message
    assert listing(tmp_path) == []


def test_output_does_not_replace_the_table(folder, tmp_path, capsys):
    table = tmp_path / "new.csv"
    shutil.copy(folder / "train.csv", table)
    (tmp_path / "link.csv").symlink_to(table)
    before = table.read_bytes()
    for command in ("predict", "report"):
        for to in (table, tmp_path / "link.csv"):
            message = misused(capsys, command, str(folder / "model"), str(table), "-o", str(to))
            assert "is the table itself; name another file by --output" in message
    assert table.read_bytes() == before
    assert listing(tmp_path) == ["link.csv", "new.csv"]


def test_text_that_is_not_utf_8_says_so(tmp_path, capsys):
    path = tmp_path / "train.csv"
    path.write_bytes("a,price\nKöln,1\nUlm,2\n".encode("latin-1"))
    assert "not UTF-8" in failed(capsys, "fit", str(path), "--target", "price")


def test_no_file_a_folder_and_a_damaged_one(tmp_path, capsys):
    assert "no file" in failed(capsys, "fit", str(tmp_path / "none.csv"), "--target", "x")
    assert "is a folder" in failed(capsys, "fit", str(tmp_path), "--target", "x")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    message = failed(capsys, "fit", str(tmp_path / "x.parquet"), "--target", "x")
    assert "damaged Parquet" in message


def new_rows(tmp_path: Path, text: str) -> str:
    path = tmp_path / "new.csv"
    path.write_text(text)
    return str(path)


def test_text_among_numbers_is_named_with_its_row(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "town,size\nUlm,10\nBonn,big\n")
    to = tmp_path / "out.csv"
    message = failed(capsys, "predict", str(folder / "model"), table, "-o", str(to))
    assert "column 'size' must hold numbers, as in training, but row 2 has 'big'" in message
    assert listing(tmp_path) == ["new.csv"]


def test_no_rows_are_no_predictions(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "town,size\n")
    to = str(tmp_path / "out.csv")
    assert "no rows" in failed(capsys, "predict", str(folder / "model"), table, "-o", to)
    assert listing(tmp_path) == ["new.csv"]


@pytest.mark.slow
def test_names_with_brackets_are_shown_as_they_are(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = houses(40).drop(columns="cheap").rename(columns={"price": "price [eur]"})
    frame.to_csv("[new].csv", index=False)
    command = ["fit", "[new].csv", "--target", "price [eur]", "--model", "[m]", *QUICK[:-1]]
    assert run(command) == 0
    shown = capsys.readouterr().err
    assert "[new].csv: 40 rows" in shown
    assert "regression of price [eur]: " in shown
    assert "of price [eur] in its 90%" in shown
    assert "[m] written" in shown


def test_help_does_not_wait_for_what_it_does_not_need():
    code = (
        "import sys; from lastlayer.tabular.cli.app import run; run(['fit', '--help']); "
        "assert not {'torch', 'pyarrow', 'sklearn', 'torchmetrics'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


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
    assert run(["fit", table, "--target", "price", "--model", model, *QUICK]) == 0
    columns = {column.name: column for column in Model(Path(model)).estimator.columns_.columns}
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
    assert run(["fit", table, "--target", "flag", "--model", model, *QUICK]) == 0
    assert load(model).classes_.tolist() == classes
    assert run(["evaluate", model, table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.7
    page = tmp_path / "report.html"
    assert run(["report", model, table, "-o", str(page)]) == 0
    assert "have no known" not in page.read_text()


@pytest.mark.slow
def test_many_numbered_classes_are_listed_as_one_counts(tmp_path):
    frame = pd.DataFrame({"size": np.linspace(0, 1, 96), "floor": np.arange(96) // 8})
    table, model, to = (str(tmp_path / name) for name in ("train.csv", "model", "out.csv"))
    frame.to_csv(table, index=False)
    command = ["fit", table, "--target", "floor", "--task", "classification", "--model", model]
    assert run([*command, *QUICK]) == 0
    assert run(["predict", model, table, "-o", to]) == 0
    found = pd.read_csv(to)
    names = [f"probability_{floor}" for floor in range(12)]
    assert [name for name in found if name.startswith("probability_")] == names
    chosen = found[names].idxmax(axis=1).str.removeprefix("probability_").astype(int)
    assert (chosen == found["prediction"]).all()


def test_thousands_may_be_apart(tmp_path, capsys):
    """Where commas separate columns, one within quotes cannot be a decimal comma."""
    path = tmp_path / "x.csv"
    path.write_text('price,code\n"1,234.5",1\n"-12,345,678",2\n99,"1,2"\n,"12,34"\n')
    table = TableFile(path).read()
    assert table["price"].to_pylist() == [1234.5, -12345678, 99, None]
    assert table["code"].to_pylist() == ["1", "2", "1,2", "12,34"]
    path.write_text("price;code\n1,234;1\n5,6;2\n7;3\n")
    assert TableFile(path).read()["price"].to_pylist() == [1.234, 5.6, 7]
    path.write_text("price;code\n1,234;1\n5,678;2\n")  # three decimals throughout
    assert TableFile(path).read()["price"].to_pylist() == [1.234, 5.678]
    path.write_text("price;code\n990;1\n1,000;2\n")
    message = failed(capsys, "fit", str(path), "--target", "code")
    assert "column 'price' has '1,000' beside '990'; if that is a thousand" in message


def test_numbers_with_signs_are_not_taken_for_classes(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("size,price\n" + "".join(f"{at},${at}.50\n" for at in range(40)))
    message = failed(capsys, "fit", str(path), "--target", "price")
    assert "text such as '$0.50', with 40 different values in 40 rows" in message
    assert "--task classification" in message


@pytest.mark.slow
def test_labels_of_rows_are_not_learnt_from(tmp_path, capsys):
    table, model = str(tmp_path / "train.csv"), str(tmp_path / "model")
    houses(40).drop(columns="cheap").to_csv(table)
    assert run(["fit", table, "--target", "price", "--model", model, *QUICK[:-1]]) == 0
    assert "first column has no name" in capsys.readouterr().err
    assert [column.name for column in load(model).columns_.columns] == ["town", "size"]
    assert run(["evaluate", model, table, "--json"]) == 0
    pd.read_csv(table).to_csv(table, index=False)  # "Unnamed: 0"
    assert run(["fit", table, "--target", "price", "--model", model, *QUICK]) == 0
    assert [column.name for column in load(model).columns_.columns] == ["town", "size"]


def test_durations_are_shown_too(capsys):
    waits = pa.array([1, 2, None], pa.duration("s"))
    days = pa.array(np.array(["2024-01-01", "2024-01-02", "2024-01-03T12"], "datetime64[us]"))
    rows = pa.table({"wait": waits, "size": [1.5, math.nan, 4.0], "day": days})
    Console().print(columns_table(Columns.of(rows), rows))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [
        ["wait", "date", "1"],
        ["size", "number", "1", "1.5", "to", "4"],
        ["day", "date", "2024-01-01", "to", "2024-01-03", "12:00:00"],
    ]


def test_of_many_columns_the_first_are_shown(capsys):
    frame = {f"column {at}": [1.0, 2.0] for at in range(50)} | {"same": [1, 1]}
    rows = pa.table(frame)
    Console().print(columns_table(Columns.of(rows), rows))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 42
    assert lines[40].startswith("column 39 ")
    assert lines[41].split() == ["and", "11", "more", "10", "number,", "1", "ignored"]


def test_dates_and_lists_are_no_targets(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("a,day\n" + "".join(f"{at},2024-01-0{at % 3 + 1}\n" for at in range(30)))
    for task in ("auto", "classification", "regression"):
        message = failed(capsys, "fit", str(path), "--target", "day", "--task", task)
        assert "dates or times, which cannot be predicted; make them numbers" in message
    pq = tmp_path / "x.parquet"
    pa.parquet.write_table(pa.table({"a": [1, 2], "list": [[1], [2]]}), pq)
    assert "holds list<" in failed(capsys, "fit", str(pq), "--target", "list")
    assert "weights are numbers" in misused(
        capsys, "fit", str(path), "--target", "a", "--weight", "day"
    )


@pytest.mark.slow
def test_decimal_classes_are_the_same_in_csv(tmp_path, capsys):
    price = [Decimal("0.00"), Decimal("1.50")] * 20
    table = pa.table({"a": list(range(40)), "price": pa.array(price, pa.decimal128(10, 2))})
    pq, path, model = (str(tmp_path / name) for name in ("x.parquet", "x.csv", "model"))
    pa.parquet.write_table(table, pq)
    table.to_pandas().to_csv(path, index=False)
    assert run(["fit", pq, "--target", "price", "--model", model, *QUICK]) == 0
    assert run(["evaluate", model, path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 40


def test_parts_without_a_truth_value_fit_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROWS_TOGETHER", 10)
    path = tmp_path / "x.csv"
    path.write_text("new,a\n" + "true,1\nfalse,2\n" * 5 + ",3\n" * 10)
    parts = list(TableFile(path).parts({"new": "number", "a": "number"}))
    whole = pa.concat_tables(parts)
    assert len(parts) == 2
    assert whole["new"].to_pylist() == [1.0, 0.0] * 5 + [None] * 10


def test_lists_are_not_written_as_csv(tmp_path):
    writer = Writer(tmp_path / "x", Path("out.csv"))
    with pytest.raises(files.FileError, match=r"cannot be written: .*; write \.parquet"):
        writer.write(pa.table({"list": [[1], [2]]}))


def test_inputs_beside_predictions_all_stay():
    inputs = pa.table({"mean": [1], "mean_input": [2], "stddev": [3]})
    both = files.beside(inputs, pa.table({"mean": [4], "stddev": [5]}))
    assert both.to_pylist() == [
        {"mean_input_input": 1, "mean_input": 2, "stddev_input": 3, "mean": 4, "stddev": 5}
    ]


@pytest.mark.slow
def test_rare_levels_are_not_called_new(tmp_path, capsys):
    streets = [f"s{at}" for at in range(40)] * 2 + ["s0", "s1"]
    table, model = str(tmp_path / "train.csv"), str(tmp_path / "model")
    pd.DataFrame({"street": streets, "y": np.arange(82.0)}).to_csv(table, index=False)
    assert run(["fit", table, "--target", "y", "--model", model, *QUICK]) == 0
    assert run(["predict", model, table, "-o", str(tmp_path / "out.csv")]) == 0
    assert "street has values that were not in training, or rare there: " in capsys.readouterr().err


@pytest.mark.slow
def test_gaps_are_not_called_unusual_where_nothing_is(tmp_path, capsys):
    table, model = tmp_path / "train.csv", str(tmp_path / "model")
    frame = houses(40).dropna()[["size", "price"]]
    frame.to_csv(table, index=False)
    assert run(["fit", str(table), "--target", "price", "--model", model, *QUICK]) == 0
    table.write_text("size\nNA\n50\n")
    assert run(["predict", model, str(table), "-o", str(tmp_path / "out.csv")]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "never were in training: 1; they are predicted without" in shown
    assert "0 of them unusual" in shown


def test_parquet_files_that_cannot_be_read(tmp_path, capsys):
    path = tmp_path / "x.parquet"
    twice = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["a", "a"])
    pa.parquet.write_table(twice, path)
    assert "2 columns named 'a'; rename them" in failed(capsys, "fit", str(path), "--target", "a")
    pa.parquet.write_table(pa.table({"a": np.random.default_rng(0).random(1000)}), path)
    data = bytearray(path.read_bytes())
    data[4:40] = b"\xff" * 36  # the header of the page
    path.write_bytes(data)
    message = failed(capsys, "fit", str(path), "--target", "a")
    assert "is a damaged Parquet file" in message
    assert "write it anew" in message


def test_small_and_ragged_files_are_told(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("a,y\n1,2\n")
    assert "just one row has a target" in failed(capsys, "fit", str(path), "--target", "y")
    path.write_text("a,y,,\n1,2,,\n2,3,,\n")
    assert "2 columns without a name" in failed(capsys, "fit", str(path), "--target", "y")
    path.write_text("a,y\n1.5,2\n#N/A,3\n<NA>,4\n")
    assert TableFile(path).read()["a"].to_pylist() == [1.5, None, None]


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
        options = ["--target", "y", "--weight", "count", "--model", model, *QUICK]
        assert run(["fit", table, *options]) == 0
        assert run(["predict", model, table, "-o", to]) == 0
        assert run(["evaluate", model, table, "--json"]) == 0
        found.append((pd.read_csv(to)["mean"].tolist(), json.loads(capsys.readouterr().out)))
    assert found[0] == found[1]


def test_decimals_are_numbers_and_nan_is_missing(tmp_path):
    price = pa.array([1, 2, 3, None], pa.float64()).cast(pa.decimal128(10, 2))
    assert infer_task(pa.chunked_array([price]))[0] == "regression"
    flags = pa.chunked_array([pa.array([0.0, 1.0, float("nan"), 1.0])])
    assert infer_task(flags) == ("classification", "two values")


def test_an_index_of_pandas_is_no_column(tmp_path):
    houses(20).sample(frac=1, random_state=0).to_parquet(tmp_path / "x.parquet")
    file = TableFile(tmp_path / "x.parquet")
    assert file.columns == ["town", "size", "price", "cheap"]
    assert file.read().column_names == file.columns


def test_headers_are_long_span_lines_and_follow_empty_ones(tmp_path):
    names = [f"a_long_name_of_a_column_{at:06d}" for at in range(4000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join(names) + "\n" + ",".join(["1"] * 4000) + "\n")
    assert TableFile(path).columns == names
    path.write_text('\n"x\nfeet",y\n1,2\n')
    assert TableFile(path).columns == ["x\nfeet", "y"]
    assert TableFile(path).read().to_pylist() == [{"x\nfeet": 1.0, "y": 2.0}]


def test_a_gap_that_never_was_is_unusual_and_told(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "town,size\nUlm,10\n,20\nUlm,\n")
    to = tmp_path / "out.csv"
    assert run(["predict", str(folder / "model"), table, "-o", str(to)]) == 0
    assert "missing that never were in training: 1;" in capsys.readouterr().err
    found = pd.read_csv(to)
    assert found["ood_score"][1] > 900 > found["ood_score"].drop(1).max()


def test_a_target_that_is_not_needed_is_not_read(folder, tmp_path):
    table = new_rows(tmp_path, "town,size,price\nUlm,10,tbd\n")
    to = tmp_path / "out.csv"
    assert run(["predict", str(folder / "model"), table, "-o", str(to), "--with-inputs"]) == 0
    assert pd.read_csv(to)["price"].tolist() == ["tbd"]


def test_inputs_called_as_outputs_are_kept(folder, tmp_path):
    table = new_rows(tmp_path, "town,size,mean\nUlm,10,7\n")
    to = tmp_path / "out.csv"
    assert run(["predict", str(folder / "model"), table, "-o", str(to), "--with-inputs"]) == 0
    assert pd.read_csv(to)["mean_input"].tolist() == [7]


def test_infinity_is_refused(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "town,size\nUlm,inf\n")
    assert "'size' holds infinity" in failed(capsys, "predict", str(folder / "model"), table)


@pytest.mark.slow
def test_a_target_that_is_infinite_is_missing_everywhere(folder, tmp_path, capsys):
    frame = houses().drop(columns="cheap")
    frame.loc[5, "price"] = np.inf
    table, model = str(tmp_path / "x.csv"), str(tmp_path / "model")
    frame.to_csv(table, index=False)
    command = ["fit", table, "--target", "price", "--model", model, *QUICK[:-1]]
    assert run(command) == 0
    assert "left out: 1 row without a finite price" in capsys.readouterr().err
    assert run(["evaluate", model, table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 119
    page = tmp_path / "report.html"
    assert run(["report", model, table, "-o", str(page)]) == 0
    assert "1 of 120 rows" in " ".join(page.read_text().split())
    frame.loc[6, "price"] = np.nan
    frame.to_csv(table, index=False)
    assert run(command) == 0
    assert "left out: 2 rows without a finite price" in capsys.readouterr().err


def test_a_column_has_one_role(folder, capsys):
    train = str(folder / "train.csv")
    assert run(["fit", train, "--target", "price", "--ignore", "price"]) == 2
    assert run(["fit", train, "--target", "price", "--weight", "price"]) == 2
    assert run(["fit", train, "--target", "price", "--weight", "town"]) == 2
    assert "weights are numbers, and 'town' holds others" in capsys.readouterr().err


def test_where_a_model_cannot_be_written_nothing_is_trained(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(LastLayerRegressor, "fit", None)
    train = [str(folder / "train.csv"), "--target", "price"]
    (tmp_path / "model.json").write_text('{"some": "other model"}')
    assert "holds more than a model" in failed(capsys, "fit", *train, "--model", str(tmp_path))
    file = str(tmp_path / "model.json")
    assert "holds more than a model" in failed(capsys, "fit", *train, "--model", file)
    assert "cannot write into" in failed(capsys, "fit", *train, "--model", f"{file}/model")

    def read_only(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", read_only)
    message = failed(capsys, "fit", *train, "--model", str(tmp_path / "new"))
    assert "Permission denied; choose another folder" in message


def test_what_cannot_happen_is_one_line_too(folder, capsys, monkeypatch):
    def broken(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(Model, "evaluate", broken)
    table = str(folder / "train.csv")
    message = failed(capsys, "evaluate", str(folder / "model"), table)
    assert "this is a bug of lastlayer: KeyError 'surprise'" in message
    monkeypatch.setenv("LASTLAYER_DEBUG", "1")
    with pytest.raises(KeyError):
        run(["evaluate", str(folder / "model"), table])
    with pytest.raises(FileNotFoundError):
        run(["evaluate", str(folder / "none"), table])


def test_a_missing_column_is_named(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "town\nUlm\n")
    message = failed(capsys, "predict", str(folder / "model"), table)
    assert "lacks 'size', which the model needs" in message


def test_a_new_category_is_predicted_and_told(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "size,town,extra\n10,Mars,1\n,Ulm,2\n")
    to = tmp_path / "out.csv"
    assert run(["predict", str(folder / "model"), table, "-o", str(to)]) == 0
    assert "town has values that were not in training: Mars" in capsys.readouterr().err
    assert pd.read_csv(to)["mean"].notna().all()


def test_an_unknown_class_cannot_be_evaluated(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "town,size,cheap\nUlm,10,maybe\n")
    message = failed(capsys, "evaluate", str(folder / "classifier"), table)
    assert "classes that there were not in training: 'maybe'" in message


def test_model_folders_that_are_none_damaged_or_newer(folder, tmp_path, capsys):
    table = str(folder / "train.csv")
    assert "no model folder" in failed(capsys, "predict", str(tmp_path / "none"), table)
    model = tmp_path / "model"
    model.mkdir()
    description = json.loads((folder / "model" / "model.json").read_text())
    (model / "model.json").write_text(json.dumps(description | {"format": 99}))
    assert "upgrade lastlayer" in failed(capsys, "predict", str(model), table)
    (model / "model.json").write_text(json.dumps(description))
    assert "damaged" in failed(capsys, "predict", str(model), table)


def test_a_full_disk_leaves_nothing_behind(folder, tmp_path, capsys, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Writer, "write", full)
    to = tmp_path / "out.csv"
    to.write_text("before")
    table = str(folder / "train.csv")
    message = failed(capsys, "predict", str(folder / "model"), table, "-o", str(to))
    assert "the disk is full; what was not whole is not there" in message
    assert to.read_text() == "before"
    assert listing(tmp_path) == ["out.csv"]


def test_a_file_that_may_not_be_so_large_says_what_to_do(folder, tmp_path, capsys, monkeypatch):
    def too_large(*_: object) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(Writer, "write", too_large)
    command = ["predict", str(folder / "model"), str(folder / "train.csv")]
    message = failed(capsys, *command, "-o", str(tmp_path / "out.csv"))
    assert "a limit (ulimit -f) allows; write elsewhere, or raise the limit" in message
    assert listing(tmp_path) == []


@pytest.mark.slow
def test_a_full_disk_leaves_the_older_model(folder, tmp_path, capsys, monkeypatch):
    train, model = str(folder / "train.csv"), tmp_path / "model"
    shutil.copytree(folder / "model", model)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    message = failed(capsys, "fit", train, "--target", "price", "--model", str(model), *QUICK)
    assert "the disk is full" in message
    assert listing(tmp_path) == ["model"]
    load(model)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """As they were before."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [(number, signal.getsignal(number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def test_nohup_is_respected(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["lastlayer", "--version"])
    with handlers_kept():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with pytest.raises(SystemExit):
            cli.main()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_terminated_is_an_interruption(folder, tmp_path, capsys, monkeypatch, number):
    """Also where a shell has Ctrl-C ignored, as for commands in the background."""
    to = tmp_path / "out.csv"
    command = ["predict", str(folder / "model"), str(folder / "train.csv"), "-o", str(to)]
    monkeypatch.setattr(sys, "argv", ["lastlayer", *command])
    monkeypatch.setattr(Model, "predictions", lambda *_: signal.raise_signal(number))
    with handlers_kept():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(number, signal.SIG_DFL)  # whatever these tests were started by
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code == 130
    assert "interrupted; what was not whole is not there" in capsys.readouterr().err
    assert listing(tmp_path) == []


def test_an_interruption_leaves_nothing_behind(folder, tmp_path, capsys, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "predictions", interrupted)
    to = tmp_path / "out.csv"
    table = str(folder / "train.csv")
    assert run(["predict", str(folder / "model"), table, "-o", str(to)]) == 130
    assert "interrupted; what was not whole is not there" in capsys.readouterr().err
    assert listing(tmp_path) == []


def test_misuse_has_its_own_exit_code(folder, capsys):
    model, table = str(folder / "model"), str(folder / "train.csv")
    assert run(["fit", table]) == 2
    assert "--target" in capsys.readouterr().err
    assert run(["predict", model, table, "--level", "90"]) == 2
    assert run(["fit", table, "--target", "price", "--hidden-layers", "a"]) == 2
    assert run(["export", model]) == 2
    capsys.readouterr()
    seed = misused(capsys, "fit", "none.csv", "--target", "price", "--seed", str(2**32))
    assert "--seed" in seed
    for text in ("é", "::", '"', "\n"):
        message = misused(capsys, "predict", model, table, "--delimiter", text)
        assert "--delimiter is one ASCII character" in message


def test_it_runs_as_a_program():
    shown = subprocess.run(
        [sys.executable, "-m", "lastlayer", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for command in ("fit", "predict", "evaluate", "report", "export", "demo"):
        assert command in shown


def test_the_embedded_table_is_whole():
    path = Path(app.__file__).with_name("penguins.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 344
    assert {row["species"] for row in rows} == {"Adelie", "Chinstrap", "Gentoo"}
