"""Which rows and frames a page can be about, and what it says without targets."""

import copy
import os
import re

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from lastlayer.report import write_report
from lastlayer.sklearn import LastLayerRegressor, load, save
from tests.helpers.frames import flats, flowers, wide_table
from tests.helpers.pages import PageParser, cards, text_of, undated, value, written


@pytest.mark.parametrize("how", ["no column", "no values"])
def test_without_targets_the_page_says_so_and_what_it_can(
    regressor, classifier, tmp_path, how, request
):
    if how == "no values":
        request.getfixturevalue("undrawn")
    for model, frame, target in (
        (regressor, flats(30, 1), "rent"),
        (classifier, flowers(30, 1), "kind"),
    ):
        rows = frame.drop(columns=target) if how == "no column" else frame.assign(**{target: None})
        page = written(model, rows, target, tmp_path)
        text = text_of(page)
        assert f"These rows have no observed {target}" in text
        assert not cards(page)
        for heading in ("Data", "Rows to inspect", "Permutation importance", "Training"):
            assert heading in text
        assert "Calibration" not in text
        tables = PageParser(page).tables
        assert {row[-3] for row in tables["Most unusual rows"][1:]} == {"–"}
        rises = [value(row[1]) for row in tables["Importance of columns"][1:]]
        assert rises[0] > 0  # predictions move, even if nobody knows whether they are good


@pytest.mark.usefixtures("undrawn")
def test_rows_without_target_are_excluded_from_scores(regressor, tmp_path):
    frame = flats(120, 1)
    frame.loc[30:49, "rent"] = np.nan
    known = written(regressor, frame.dropna(subset="rent"), "rent", tmp_path)
    page = written(regressor, frame, "rent", tmp_path)
    assert cards(page) == cards(known)
    assert "20 of 120 rows have no rent that the model could predict" in text_of(page)


@pytest.mark.usefixtures("undrawn")
def test_classes_that_are_new_are_named(classifier, tmp_path):
    frame = flowers(60, 1)
    frame.loc[:3, "kind"] = "tulip"
    page = written(classifier, frame, "kind", tmp_path)
    assert cards(page) == cards(written(classifier, frame[4:], "kind", tmp_path))
    assert "classes that were not in training: tulip." in text_of(page)


def test_one_row_is_enough(regressor, classifier, tmp_path):
    page = written(regressor, flats(1, 1), "rent", tmp_path)
    assert cards(page)["Variance explained (R²)"] == "–"
    assert value(cards(page)["Coverage of 90 % intervals"]) in (0, 100)
    assert "On 1 held-out row, " in text_of(page)
    for other in (page, written(classifier, flowers(1, 1), "kind", tmp_path)):
        assert not re.search(r"\b(nan|inf)\b", text_of(other), re.IGNORECASE)
        assert "NaN" not in other


@pytest.mark.usefixtures("undrawn")
def test_columns_without_names_have_those_of_the_frame(wide, wide_page, tmp_path):
    frame = wide_table(60)
    numbered = frame.set_axis(range(51), axis=1)
    page = written(wide, numbered, "50", tmp_path)
    assert cards(page) == {
        name: shown.replace("y", "50") for name, shown in cards(wide_page).items()
    }
    assert PageParser(page).tables["Importance of columns"][1][0] == "49"
    with pytest.raises(ValueError, match="50 columns without names, and the table has 51"):
        write_report(wide, frame.assign(more=0), "y", tmp_path / "report.html")


@pytest.mark.usefixtures("undrawn")
def test_frames_of_all_libraries_lead_to_the_same_page(regressor, classifier, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    for model, frame, target in (
        (regressor, flats(60, 1), "rent"),
        (classifier, flowers(60, 1), "kind"),
    ):
        pages = [
            undated(written(model, rows, target, tmp_path))
            for rows in (frame, pl.from_pandas(frame), pyarrow.Table.from_pandas(frame))
        ]
        assert pages[0] == pages[1] == pages[2]


@pytest.mark.usefixtures("undrawn")
def test_a_saved_model_has_the_same_page(regressor, regression_page, tmp_path):
    save(regressor, tmp_path / "model")
    again = written(load(tmp_path / "model"), flats(120, 1), "rent", tmp_path)
    assert text_of(undated(again)) == text_of(undated(regression_page))


def test_the_same_model_and_rows_lead_to_the_same_page(regressor, regression_page, tmp_path):
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "red"}):
        before = dict(mpl.rcParams)
        again = written(regressor, flats(120, 1), "rent", tmp_path)
        assert dict(mpl.rcParams) == before
    assert undated(again) == undated(regression_page)


@pytest.mark.usefixtures("undrawn")
def test_an_interruption_leaves_what_was_there(regressor, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("older")
    for name in ("replace", "fsync"):

        def stop(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(os, name, stop)
            with pytest.raises(KeyboardInterrupt):
                write_report(regressor, flats(5, 1), "rent", path)
        assert path.read_text() == "older"
        assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    write_report(regressor, flats(5, 1), "rent", path)
    assert path.read_text().startswith("<!doctype html>")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_what_cannot_be_reported_says_why(regressor, classifier, tmp_path):
    frame = flats(10, 1)
    path = tmp_path / "report.html"
    with pytest.raises(NotFittedError):
        write_report(LastLayerRegressor(), frame, "rent", path)
    with pytest.raises(TypeError, match="got Pipeline; of a pipeline pass the last step"):
        write_report(make_pipeline(regressor), frame, "rent", path)
    with pytest.raises(ValueError, match="at least one row"):
        write_report(regressor, frame[:0], "rent", path)
    with pytest.raises(ValueError, match="predicts from 'size'"):
        write_report(regressor, frame, "size", path)
    with pytest.raises(ValueError, match="lacks 'town'"):
        write_report(regressor, frame.drop(columns="town"), "rent", path)
    with pytest.raises(ValueError, match="'rent' must hold numbers, as in training"):
        write_report(regressor, frame.assign(rent="much"), "rent", path)
    with pytest.raises(ValueError, match="'rent' holds infinity"):
        write_report(regressor, frame.assign(rent=np.inf), "rent", path)
    far = frame.copy()
    far.loc[3, "size"] = np.inf
    with pytest.raises(ValueError, match="column 'size' holds infinity; replace it"):
        write_report(regressor, far, "rent", path)
    far.loc[3, "size"] = 1e300
    with pytest.raises(ValueError, match="prediction of row 4 is not finite"):
        write_report(regressor, far, "rent", path)
    several = copy.copy(regressor)
    several.target_shape_ = (2,)
    with pytest.raises(ValueError, match="one target, and the model predicts 2"):
        write_report(several, frame, "rent", path)
    assert not list(tmp_path.iterdir())
