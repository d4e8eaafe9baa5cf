"""Predictions and scores of files, from the command line."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from lastlayer.sklearn import load
from lastlayer.tabular.cli.running import run
from lastlayer.tabular.files import csv_files
from lastlayer.tabular.files.tables import TableFile
from tests.helpers.commands import QUICK_FIT, failed, houses, listing, misused, new_rows


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


def test_conformal_intervals_and_sets_are_those_of_the_estimator(folder, tmp_path):
    frame = houses()[["town", "size"]]
    for table, target in (("train.csv", "price"), ("classes.csv", "cheap")):
        model, to, rows = tmp_path / target, tmp_path / "out.csv", str(folder / table)
        options = ["--target", target, "--model", str(model), "--interval", "conformal"]
        assert run(["fit", rows, *options, *QUICK_FIT]) == 0
        assert run(["predict", str(model), rows, "-o", str(to), "--level", "0.8"]) == 0
        found, estimator = pd.read_csv(to, keep_default_na=False), load(model)
        if target == "price":
            ends = estimator.predict_interval(frame, 0.8)
            np.testing.assert_allclose(found[["lower", "upper"]], ends)
        else:
            sets = [estimator.classes_[row] for row in estimator.predict_set(frame, 0.8)]
            assert found["set"].tolist() == ["|".join(labels) for labels in sets]


def test_scores_equal_those_of_numpy(folder, capsys):
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
    assert found["most_frequent"] == frame["cheap"].value_counts(normalize=True).max()


def test_a_file_in_many_parts_is_predicted_as_in_one(folder, tmp_path, monkeypatch):
    command = ["predict", str(folder / "model"), str(folder / "train.csv"), "-o"]
    assert run([*command, str(tmp_path / "whole.csv")]) == 0
    monkeypatch.setattr(csv_files, "MAX_BYTES", 500)
    assert len(list(TableFile(folder / "train.csv").parts({}))) > 3
    assert run([*command, str(tmp_path / "parts.csv")]) == 0
    whole, parts = (pd.read_csv(tmp_path / name) for name in ("whole.csv", "parts.csv"))
    pd.testing.assert_frame_equal(whole, parts)


@pytest.mark.slow
def test_numbered_classes_are_listed_in_numerical_order(tmp_path):
    frame = pd.DataFrame({"size": np.linspace(0, 1, 96), "floor": np.arange(96) // 8})
    table, model, to = (str(tmp_path / name) for name in ("train.csv", "model", "out.csv"))
    frame.to_csv(table, index=False)
    command = ["fit", table, "--target", "floor", "--task", "classification", "--model", model]
    assert run([*command, *QUICK_FIT]) == 0
    assert run(["predict", model, table, "-o", to]) == 0
    found = pd.read_csv(to)
    names = [f"probability_{floor}" for floor in range(12)]
    assert [name for name in found if name.startswith("probability_")] == names
    chosen = found[names].idxmax(axis=1).str.removeprefix("probability_").astype(int)
    assert (chosen == found["prediction"]).all()


@pytest.mark.slow
def test_rare_levels_are_not_called_new(tmp_path, capsys):
    streets = [f"s{at}" for at in range(40)] * 2 + ["s0", "s1"]
    table, model = str(tmp_path / "train.csv"), str(tmp_path / "model")
    pd.DataFrame({"street": streets, "y": np.arange(82.0)}).to_csv(table, index=False)
    assert run(["fit", table, "--target", "y", "--model", model, *QUICK_FIT]) == 0
    assert run(["predict", model, table, "-o", str(tmp_path / "out.csv")]) == 0
    assert "street has levels that were not in training, or rare there: " in capsys.readouterr().err


@pytest.mark.slow
def test_newly_missing_values_are_not_called_unusual_without_a_threshold(tmp_path, capsys):
    table, model = tmp_path / "train.csv", str(tmp_path / "model")
    frame = houses(40).dropna()[["size", "price"]]
    frame.to_csv(table, index=False)
    assert run(["fit", str(table), "--target", "price", "--model", model, *QUICK_FIT]) == 0
    table.write_text("size\nNA\n50\n")
    assert run(["predict", model, str(table), "-o", str(tmp_path / "out.csv")]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "complete in training: 1; they are predicted without" in shown
    assert "0 of them unusual" in shown


def test_a_newly_missing_value_is_unusual_and_warned_of(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "town,size\nUlm,10\n,20\nUlm,\n")
    to = tmp_path / "out.csv"
    assert run(["predict", str(folder / "model"), table, "-o", str(to)]) == 0
    assert "complete in training: 1;" in capsys.readouterr().err
    found = pd.read_csv(to)
    assert found["ood_score"][1] > 900 > found["ood_score"].drop(1).max()


def test_a_new_category_level_is_predicted_and_warned_of(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "size,town,extra\n10,Mars,1\n,Ulm,2\n")
    to = tmp_path / "out.csv"
    assert run(["predict", str(folder / "model"), table, "-o", str(to)]) == 0
    assert "town has levels that were not in training: Mars" in capsys.readouterr().err
    assert pd.read_csv(to)["mean"].notna().all()


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


def test_infinity_is_refused(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "town,size\nUlm,inf\n")
    assert "'size' holds infinity" in failed(capsys, "predict", str(folder / "model"), table)


def test_a_missing_column_is_named(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "town\nUlm\n")
    message = failed(capsys, "predict", str(folder / "model"), table)
    assert "lacks 'size', which the model needs" in message
    table = new_rows(tmp_path, "town,Size\nUlm,3\n")
    assert "is 'Size' meant?" in failed(capsys, "predict", str(folder / "model"), table)


def test_an_unknown_class_cannot_be_evaluated(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "town,size,cheap\nUlm,10,maybe\n")
    message = failed(capsys, "evaluate", str(folder / "classifier"), table)
    assert "classes that were not in training: 'maybe'" in message


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


def test_predictions_that_overflow_are_warned_of(folder, tmp_path, capsys):
    table = new_rows(tmp_path, "town,size,price\nUlm,1e300,1\nUlm,100,400\n")
    to = tmp_path / "out.csv"
    assert run(["predict", str(folder / "model"), table, "-o", str(to)]) == 0
    assert "predictions that are not finite: 1;" in capsys.readouterr().err
    predictions = pd.read_csv(to)
    assert predictions["unusual"].tolist() == [True, False]
    assert np.isfinite(predictions.loc[1, "mean"])
    assert run(["evaluate", str(folder / "model"), table]) == 0
    assert "predictions that are not finite: 1;" in capsys.readouterr().err
