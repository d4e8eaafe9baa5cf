"""Summary statistics of columns, and numbers and names as text."""

import datetime as dt
import math
import re

import numpy as np
import pandas as pd
import pytest

from lastlayer.sklearn import LastLayerRegressor
from lastlayer.tabular.report.wording import number, percent, plain, probability
from tests.helpers.estimators import QUICK
from tests.helpers.frames import QUOTED, flats, flowers
from tests.helpers.pages import PageParser, text_of, written


def test_columns_are_summarised(regression_page):
    frame = flats(120, 1)
    _, *rows = PageParser(regression_page).tables["Columns of the table"]
    found = {row[0]: row[1:] for row in rows}
    assert list(found) == ["rent", "town", "size", QUOTED, "since", "id", "country"]
    kinds = [row[1] for row in rows]
    assert kinds == [
        "target, number", "category", "number", "number", "date", "ignored", "ignored"
    ]  # fmt: skip
    missing = int(frame["size"].isna().sum())
    assert found["size"][1].startswith(f"{missing} ({percent(missing / 120)}".replace("\xa0", " "))
    low, high, middle = (
        number(float(frame["size"].agg(function))) for function in ("min", "max", "median")
    )
    assert found["size"][2] == f"{low} to {high}, median {middle}"
    share = (frame["town"].dropna() == "Ulm").mean()
    assert found["town"][2].startswith(f"Ulm: {percent(share)}".replace("\xa0", " "))
    assert (
        found["since"][2] == f"{frame['since'].min():%Y-%m-%d} to {frame['since'].max():%Y-%m-%d}"
    )
    assert found["country"][3] == "always the same"
    assert found["id"][3] == "text, 200 different values"


def test_numbers_have_three_significant_digits_and_integers_are_in_full():
    shown = {
        0.0: "0", 1.0: "1", -2.5: "−2.50", 0.012345: "0.0123", 9.996: "10.0", 4201.75: "4202",
        123456.7: "123\u202f457", 1234567.0: "1.23\xa0×\xa010⁶", 4.5e-7: "4.50\xa0×\xa010⁻⁷",
        math.nan: "–", -math.inf: "−∞",
    }  # fmt: skip
    assert {given: number(given) for given in shown} == shown
    assert [percent(share) for share in (0.1, 0.875, 1.0)] == ["10\xa0%", "87.5\xa0%", "100\xa0%"]
    assert probability(1.0) == ">\xa099.9\xa0%"
    assert probability(1e-9) == "<\xa00.1\xa0%"


def test_names_are_on_one_line_and_the_ends_of_long_ones_are_kept():
    assert plain("a\n b\x00\ud800c") == "a b c"
    assert plain("\t") == "(blank)"
    assert plain("a" * 100 + "b", 10) == "aaaaaa…aab"


def test_columns_that_are_constant_or_empty_in_these_rows_are_no_trouble(
    regressor, classifier, tmp_path
):
    frame = flats(40, 1).assign(size=50.0, town="Ulm", since=pd.Timestamp("2005-01-01"))
    frame[QUOTED] = np.nan
    page = written(regressor, frame, "rent", tmp_path)
    rows = {row[0]: row[3] for row in PageParser(page).tables["Columns of the table"][1:]}
    assert rows["size"] == "always 50"
    assert rows[QUOTED] == "none"
    assert "Shown are 3 of 4 columns" in text_of(page)
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)
    written(classifier, flowers(40, 1).assign(long=1.0, colour="green"), "kind", tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_ignored_columns_may_have_missing_values_of_all_types(tmp_path):
    frame = flats(60, 0)[["size", "rent"]]
    names = [pd.NA if at % 5 == 0 else f"no {at}" for at in range(60)]
    frame = frame.assign(
        name=pd.array(names, dtype="string"),
        nothing=pd.array([pd.NA] * 60, dtype="Int64"),
        day=[dt.date(2001, 1, 1 + at % 28) for at in range(60)],
    )
    model = LastLayerRegressor(**QUICK | {"max_epochs": 2})
    model.fit(frame.drop(columns="rent"), frame["rent"])
    page = text_of(written(model, frame, "rent", tmp_path))
    assert "name ignored 12 (20 %)" in page
    assert "nothing ignored 60 (100 %)" in page
    assert "day date 0 2001-01-01 to 2001-01-28" in page
