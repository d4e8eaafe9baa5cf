"""What the page about a model says, against what it should, and that it is safe to send."""

import copy
import datetime as dt
import html
import importlib
import math
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

pytest.importorskip("jinja2", reason="install lastlayer[report]")
pytest.importorskip("matplotlib", reason="install lastlayer[report]")
pytest.importorskip("torchmetrics", reason="install lastlayer[report]")

import matplotlib as mpl
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from lastlayer.report import write_report
from lastlayer.sklearn import LastLayerClassifier, LastLayerRegressor, load, save
from lastlayer.tabular.columns import Column
from lastlayer.tabular.encoding import Encoding
from lastlayer.tabular.report import figures, influence, measures
from lastlayer.tabular.report.effects import (
    partial_dependence,
    permutation_importance,
    places,
    shuffling_slope,
)
from lastlayer.tabular.report.reading import some
from lastlayer.tabular.report.wording import number, percent, plain, probability
from tests.helpers.estimators import QUICK

EVIL, QUOTED = "<script>alert(1)</script>", 'a & "b" $x$'
LEVELS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99)


# ----------------------------------------------------------------------------------- tables


def flats(rows: int, seed: int) -> pd.DataFrame:
    """Rents that depend on size and town, and neither on luck nor on the date."""
    generator = np.random.default_rng(seed)
    town = generator.choice(["Ulm", "Bonn", EVIL], rows, p=[0.5, 0.3, 0.2])
    size = generator.uniform(20, 200, rows)
    rent = 400 + 9 * size + 300 * (town == "Bonn") + 60 * generator.standard_normal(rows)
    return pd.DataFrame(
        {
            "town": pd.Series(town, dtype=object).mask(generator.random(rows) < 0.1),
            "size": np.where(generator.random(rows) < 0.1, np.nan, size),
            QUOTED: generator.standard_normal(rows),
            "since": pd.Timestamp("2001-01-01")
            + pd.to_timedelta(generator.integers(0, 4000, rows), unit="D"),
            "id": [f"no {seed} {at}" for at in range(rows)],
            "country": "D",
            "rent": rent,
        }
    )


def flowers(rows: int, seed: int, classes: int = 3) -> pd.DataFrame:
    """Kinds that follow from two lengths, and not from a third."""
    generator = np.random.default_rng(seed)
    kind = generator.integers(0, classes, rows)
    frame = pd.DataFrame(
        {
            "long": kind + 0.6 * generator.standard_normal(rows),
            "wide": (kind % 2) + 0.4 * generator.standard_normal(rows),
            "noise": generator.standard_normal(rows),
            "colour": np.array(["red", "blue"])[(kind + generator.integers(0, 2, rows)) % 2],
        }
    )
    frame["kind"] = np.array(["iris", "rose", EVIL])[kind] if classes > 2 else kind
    return frame


def wide_table(rows: int) -> pd.DataFrame:
    """Fifty columns with long names, of which one matters."""
    generator = np.random.default_rng(rows)
    names = [f"{'a long name ' * 20}{at}" for at in range(49)] + ["x" * 300]
    frame = pd.DataFrame(generator.standard_normal((rows, 50)), columns=names)
    return frame.assign(y=5 * frame["x" * 300] + 0.1 * generator.standard_normal(rows))


def crowded_table(rows: int) -> pd.DataFrame:
    """Many levels in letters of many scripts, and many classes."""
    generator = np.random.default_rng(rows)
    names = np.array(["東京", "🙂", "long " * 30, *(f"level {at}" for at in range(20))])
    label = np.arange(rows) % 20
    level = np.where(generator.random(rows) < 0.5, label % 3, generator.integers(0, 23, rows))
    size = label + 0.1 * generator.standard_normal(rows)
    return pd.DataFrame({"città": names[level], "size": size, "label": label})


@pytest.fixture(scope="module")
def regressor() -> LastLayerRegressor:
    frame = flats(200, 0)
    return LastLayerRegressor(**QUICK).fit(frame.drop(columns="rent"), frame["rent"])


@pytest.fixture(scope="module")
def classifier() -> LastLayerClassifier:
    frame = flowers(200, 0)
    return LastLayerClassifier(**QUICK).fit(frame.drop(columns="kind"), frame["kind"])


@pytest.fixture(scope="module")
def binary() -> LastLayerClassifier:
    frame = flowers(200, 0, 2)
    return LastLayerClassifier(**QUICK).fit(frame.drop(columns="kind"), frame["kind"])


@pytest.fixture(scope="module")
def wide() -> LastLayerRegressor:
    """Of an array, whose columns have no names."""
    frame = wide_table(200)
    return LastLayerRegressor(**QUICK).fit(frame.drop(columns="y").to_numpy(), frame["y"])


@pytest.fixture(scope="module")
def wide_page(wide, tmp_path_factory) -> str:
    return written(wide, wide_table(60), "y", tmp_path_factory.mktemp("wide"))


@pytest.fixture(scope="module")
def crowded_page(tmp_path_factory) -> str:
    train, test = crowded_table(300), crowded_table(100)
    model = LastLayerClassifier("generative", **QUICK | {"max_epochs": 3})
    model.fit(train.drop(columns="label"), train["label"])
    return written(model, test, "label", tmp_path_factory.mktemp("crowded"))


@pytest.fixture(scope="module")
def regression_page(regressor, tmp_path_factory) -> str:
    return written(regressor, flats(120, 1), "rent", tmp_path_factory.mktemp("regression"))


@pytest.fixture(scope="module")
def classification_page(classifier, tmp_path_factory) -> str:
    return written(classifier, flowers(120, 1), "kind", tmp_path_factory.mktemp("classification"))


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """For pages whose figures do not matter."""
    monkeypatch.setattr(figures, "picture", lambda *_: "")


def written(model, frame, target, folder, **options) -> str:
    path = Path(folder) / "report.html"
    write_report(model, frame, target, path, **options)
    return path.read_text(encoding="utf-8")


# ------------------------------------------------------------------------------- reading pages


class Tables(HTMLParser):
    """The texts of all tables, by the label of what holds them, and ids, links and tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.attributes: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.label = ""
        self.feed(page)
        for table in self.tables.values():
            table[:] = [[" ".join(cell.split()) for cell in row] for row in table]

    def handle_starttag(self, tag, attrs):
        found = {name: value or "" for name, value in attrs}
        self.attributes.append((tag, found))
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)
        if found.get("role") == "region":
            self.label = found["aria-label"]
            self.tables[self.label] = []
        if tag == "tr":
            self.tables[self.label].append([])
        if tag in ("td", "th"):
            self.tables[self.label][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.attributes.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.tables[self.label][-1][-1] += data


def cards(page: str) -> dict[str, str]:
    found = re.findall(r'<dt>(.*?)</dt>\s*<dd class="value">(.*?)(?:<span|</dd>)', page, re.DOTALL)
    return {html.unescape(name).replace("\xa0", " "): value.strip() for name, value in found}


def value(text: str) -> float:
    """A number that the page shows."""
    text = re.split(r"[%(]", text)[0]
    return float(re.sub(r"[\s\u202f\xa0]", "", text).replace("−", "-"))


def text_of(page: str) -> str:
    """What is read, without what is styled or drawn."""
    page = re.sub(r"<(style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]*>", " ", page))
    return re.sub(r"\s+([.,;:)])", r"\1", " ".join(text.split()))


def undated(page: str) -> str:
    return re.sub(r"<time.*?</time>", "", page)


# ------------------------------------------------------------------------------------ numbers


def test_key_figures_of_regression_are_those_of_numpy(regressor, regression_page):
    frame = flats(120, 1)
    rent = frame["rent"].to_numpy()
    rows = frame.drop(columns="rent")
    mean = regressor.predict(rows)
    lower, upper = regressor.predict_interval(rows, 0.9).T
    square = np.mean((rent - mean) ** 2)
    draws = regressor.sample_y(rows, 4000)
    far = np.abs(draws - rent[:, None]).mean(1)
    apart = np.abs(draws[:, ::2] - draws[:, 1::2]).mean(1)
    density = regressor.predict_dist(rows).distribution()
    expected = {
        "Typical error (RMSE)": math.sqrt(square),
        "Variance explained (R²)": 1 - square / rent.var(),
        "Coverage of 90 % intervals": 100 * np.mean((lower <= rent) & (rent <= upper)),
        "Mean width of 90 % intervals": np.mean(upper - lower),
        "Negative log-likelihood (NLL)": -density.log_prob(torch.tensor(rent)[:, None])
        .mean()
        .item(),
    }
    found = cards(regression_page)
    for name, wanted in expected.items():
        assert value(found[name]) == pytest.approx(wanted, rel=6e-3), name
    assert value(found["CRPS"]) == pytest.approx((far - apart / 2).mean(), rel=0.03)


def test_coverage_and_width_at_every_level_are_counted(regressor, regression_page):
    frame = flats(120, 1)
    table = Tables(regression_page).tables["Coverage by level"][1:]
    assert [value(row[0]) for row in table] == list(LEVELS)
    for row, level in zip(table, LEVELS, strict=True):
        ends = regressor.predict_interval(frame.drop(columns="rent"), level / 100)
        inside = (ends[:, 0] <= frame["rent"]) & (frame["rent"] <= ends[:, 1])
        assert value(row[1]) == pytest.approx(100 * inside.mean(), rel=6e-3)
        assert value(row[2]) == pytest.approx((ends[:, 1] - ends[:, 0]).mean(), rel=6e-3)


@pytest.mark.usefixtures("undrawn")
def test_of_many_rows_some_are_in_the_curve_and_all_in_the_key_figures(
    regressor, regression_page, tmp_path, monkeypatch
):
    monkeypatch.setattr(measures, "MOST_IN_CURVE", 50)
    frame = flats(120, 1)
    page = written(regressor, frame, "rent", tmp_path)
    assert cards(page) == cards(regression_page)
    assert "are those of 50 rows, chosen at random" in text_of(page)
    chosen = frame.iloc[some(np.arange(120), 50)]
    low, high = regressor.predict_interval(chosen.drop(columns="rent"), 0.5).T
    inside = (low <= chosen["rent"]) & (chosen["rent"] <= high)
    assert value(Tables(page).tables["Coverage by level"][5][1]) == 100 * inside.mean()


def test_key_figures_of_classification_are_those_of_numpy(classifier, classification_page):
    frame = flowers(120, 1)
    probs = classifier.predict_proba(frame.drop(columns="kind"))
    label = np.searchsorted(classifier.classes_, frame["kind"].to_numpy(str))
    right = probs.argmax(1) == label
    truth = np.eye(3)[label]
    confidence = probs.max(1)
    bins = np.minimum((15 * confidence).astype(int), 14)
    gaps = [abs((right - confidence)[bins == at].sum()) for at in range(15)]
    expected = {
        "Accuracy": 100 * right.mean(),
        "Negative log-likelihood (NLL)": -np.log(probs[range(120), label]).mean(),
        "Brier score": ((probs - truth) ** 2).sum(1).mean(),
        "Expected calibration error (ECE)": 100 * sum(gaps) / 120,
    }
    found = cards(classification_page)
    assert found.keys() == expected.keys()  # AUROC is of two classes
    for name, wanted in expected.items():
        assert value(found[name]) == pytest.approx(wanted, rel=6e-3), name


def test_the_confusion_matrix_counts_rows(classifier, classification_page):
    frame = flowers(120, 1)
    predicted = classifier.predict(frame.drop(columns="kind"))
    header, *rows = Tables(classification_page).tables["Confusion matrix"]
    names = [str(name) for name in classifier.classes_]
    assert header[1:] == names
    for row, observed in zip(rows, names, strict=True):
        counts = [((frame["kind"] == observed) & (predicted == name)).sum() for name in names]
        assert row == [observed, *map(str, counts)]


def test_numbered_classes_are_confused_as_one_counts(monkeypatch):
    classes = sorted(map(str, range(1, 12)))  # 1, 10, 11, 2, …
    target = torch.arange(11).repeat(2)
    predicted = target.clone()
    predicted[classes.index("2")] = classes.index("10")
    found = measures._confusion(target, predicted, classes)
    assert found.names == [str(at) for at in range(1, 12)]
    expected = 2 * np.eye(11)
    expected[1, [1, 9]] = 1
    np.testing.assert_array_equal(found.counts, expected)
    monkeypatch.setattr(measures, "MOST_CLASSES", 4)
    found = measures._confusion(torch.cat([target, target[7:11]]), torch.zeros(26).long(), classes)
    assert found.names == ["6", "7", "8", "8 others"]
    assert found.counts[:, 3].tolist() == [3, 3, 3, 17]


@pytest.mark.usefixtures("undrawn")
def test_auroc_is_how_often_pairs_are_in_order(binary, tmp_path):
    frame = flowers(90, 1, 2)
    page = written(binary, frame, "kind", tmp_path)
    score = binary.predict_proba(frame.drop(columns="kind"))[:, 1]
    pairs = score[frame["kind"] == 1][:, None] > score[frame["kind"] == 0]
    assert value(cards(page)["AUROC"]) == pytest.approx(pairs.mean(), rel=6e-3)
    one_class = written(binary, frame[frame["kind"] == 1], "kind", tmp_path)
    assert cards(one_class)["AUROC"] == "–"


@pytest.mark.usefixtures("undrawn")
def test_rows_to_look_at_are_the_least_certain_and_the_strangest(regressor, tmp_path):
    frame = flats(120, 1)
    frame.loc[7, ["size", QUOTED]] = [2000.0, 30.0]
    frame.index = pd.Index([f"flat {at}" for at in range(120)])
    rows = frame.drop(columns="rent")
    page = written(regressor, frame, "rent", tmp_path)
    _, stddev = regressor.predict(rows, return_std=True)
    score = regressor.ood_score(rows)
    tables = Tables(page).tables
    for label, wanted in (("Most uncertain rows", stddev), ("Most unusual rows", score)):
        header, *shown = tables[label]
        assert header[:2] == ["row", "index"]
        numbers = [int(row[0]) - 1 for row in shown]
        assert numbers == np.argsort(-wanted)[:10].tolist()
        for at, row in zip(numbers, shown, strict=True):
            assert row[1] == f"flat {at}"
            assert value(row[2]) == pytest.approx(regressor.predict(rows)[at], rel=6e-3)
            lower, upper = regressor.predict_interval(rows, 0.9)[at]
            assert value(row[3].split(" to ")[0]) == pytest.approx(lower, rel=6e-3, abs=1)
            assert value(row[4]) == pytest.approx(frame["rent"].iloc[at], rel=6e-3)
            assert value(row[5]) == pytest.approx(score[at], rel=6e-3)
            assert ("unusual" in row[6]) == (score[at] > regressor.ood_threshold_)
            assert ("outside" in row[6]) == (not lower <= frame["rent"].iloc[at] <= upper)
    assert "unusual" in tables["Most unusual rows"][1][6]  # the one that was made so


@pytest.mark.usefixtures("undrawn")
def test_without_a_threshold_no_row_is_marked(regressor, tmp_path):
    model = copy.copy(regressor)
    model.ood_threshold_ = math.inf  # of a model of few rows
    page = written(model, flats(20, 1), "rent", tmp_path)
    assert "Training had too few rows to say which score is too high" in text_of(page)
    assert "unusual" not in "".join(row[-1] for row in Tables(page).tables["Most unusual rows"])
    assert "∞" not in page


def test_classes_are_shown_with_the_second_likeliest(classifier, classification_page):
    frame = flowers(120, 1)
    probs = classifier.predict_proba(frame.drop(columns="kind"))
    entropy = -(probs * np.log(probs)).sum(1)
    first = Tables(classification_page).tables["Most uncertain rows"][1]
    at = int(entropy.argmax())
    order = np.argsort(-probs[at])
    assert first[0] == str(at + 1)
    assert first[1] == classifier.classes_[order[0]]
    assert value(first[2]) == pytest.approx(100 * probs[at, order[0]], rel=6e-3)
    assert first[3].startswith(f"{classifier.classes_[order[1]]}, ")
    assert first[4] == frame["kind"][at]
    assert ("wrong" in first[6]) == (first[1] != first[4])


def test_columns_are_summarised(regression_page):
    frame = flats(120, 1)
    _, *rows = Tables(regression_page).tables["Columns of the table"]
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
    assert found["size"][2] == f"{low} to {high}, half below {middle}"
    share = (frame["town"].dropna() == "Ulm").mean()
    assert found["town"][2].startswith(f"Ulm: {percent(share)}".replace("\xa0", " "))
    assert (
        found["since"][2] == f"{frame['since'].min():%Y-%m-%d} to {frame['since'].max():%Y-%m-%d}"
    )
    assert found["country"][3] == "always the same"
    assert found["id"][3] == "text, 200 different values"


def test_numbers_have_three_significant_digits_and_whole_ones_are_in_full():
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


# ------------------------------------------------------------------------------------ effects


def test_partial_dependence_of_a_known_function_is_its_average_over_the_other_columns():
    codes = np.random.default_rng(0).standard_normal((400, 3))

    def predict(rows):
        return np.stack([rows[:, 0] ** 2 + rows[:, 1], 5 - rows[:, 0] * rows[:, 2]], 1)

    values = np.linspace(-2, 2, 9)
    effect = partial_dependence(predict, codes, 0, values)
    np.testing.assert_allclose(effect.average[:, 0], values**2 + codes[:, 1].mean())
    np.testing.assert_allclose(effect.average[:, 1], 5 - values * codes[:, 2].mean())
    low, high = np.quantile(codes[:, 1], [0.1, 0.9])
    np.testing.assert_allclose(effect.low[:, 0], values**2 + low)
    np.testing.assert_allclose(effect.high[:, 0], values**2 + high)


def test_centred_curves_of_rows_that_react_alike_are_one():
    codes = np.random.default_rng(0).standard_normal((50, 2))
    values = np.linspace(0, 1, 5)

    def predict(rows):
        return rows[:, :1] + 10 * rows[:, 1:]

    effect = partial_dependence(predict, codes, 0, values, centred=True)
    np.testing.assert_allclose(effect.low, effect.average)
    np.testing.assert_allclose(effect.high, effect.average)


def test_places_are_values_of_the_rows():
    numbers = np.r_[np.arange(1000.0), np.nan]
    found = places(Column("x", "number"), numbers)
    assert len(found) == 20
    np.testing.assert_allclose(found, np.linspace(25, 975, 20), atol=2)
    assert np.isin(found, numbers).all()
    np.testing.assert_array_equal(places(Column("x", "number"), np.array([3.0, 1, 3])), [1, 3])
    assert len(places(Column("x", "number"), np.full(3, np.nan))) == 0
    levels = np.array([1, 1, 1, 0, np.nan, np.nan, -1, 2, 2, 2, 2.0])
    category = Column("x", "category", ("a", "b", "c"))
    np.testing.assert_array_equal(places(category, levels), [2, 1, np.nan, -1, 0])


def test_permutation_importance_of_a_known_function():
    codes = np.random.default_rng(0).standard_normal((2000, 3))
    target = 3 * codes[:, 0] + codes[:, 1]

    def loss(rows):
        return float(np.mean((target - 3 * rows[:, 0] - rows[:, 1]) ** 2))

    found = permutation_importance(loss, codes)
    np.testing.assert_allclose(found, [18, 2, 0], rtol=0.1)  # 2 a² Var(x)
    np.testing.assert_array_equal(found, permutation_importance(loss, codes))
    assert not np.array_equal(found, permutation_importance(loss, codes, seed=1))


def test_the_slope_of_shuffling_a_linear_function_is_how_far_it_moves():
    generator = np.random.default_rng(0)
    numbers = generator.standard_normal((30, 2))
    codes = np.column_stack([numbers, generator.integers(0, 3, 30)])
    encoding = Encoding.fit(torch.from_numpy(codes), [0, 0, 3], torch.ones(30))
    weight = torch.tensor([2.0, 0.0, 1.0, 3.0, -1.0], dtype=torch.float64)
    found = shuffling_slope(lambda inputs: inputs @ weight, encoding, codes)

    def predictions(codes: np.ndarray) -> np.ndarray:
        return np.asarray(encoding(torch.from_numpy(codes)) @ weight)

    order = np.random.default_rng(0).permutation(30)
    for at in range(3):
        shuffled = codes.copy()
        shuffled[:, at] = codes[order, at]
        moved = np.abs(predictions(shuffled) - predictions(codes)).mean()
        assert found[at] == pytest.approx(moved, abs=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("target", ["y", "high"])
def test_of_very_many_columns_those_that_move_predictions_are_shuffled(
    target, tmp_path, monkeypatch
):
    monkeypatch.setattr(influence, "MOST_SHUFFLED", 7)
    frame = wide_table(200).assign(high=lambda rows: np.where(rows["y"] > 0, "yes", "no"))
    frame = frame.drop(columns=({"y", "high"} - {target}).pop())
    kind = LastLayerRegressor if target == "y" else LastLayerClassifier
    model = kind(**QUICK).fit(frame.drop(columns=target), frame[target])
    page = written(model, frame, target, tmp_path)
    rows = Tables(page).tables["Importance of columns"][1:]
    assert len(rows) == 7
    assert rows[0][0].startswith("xxx")
    assert "43 columns of less importance are not listed. Of all 50 columns, 7 were" in text_of(
        page
    )


def test_a_column_that_does_not_matter_has_no_importance(regression_page, classification_page):
    for page, strong, weak in (
        (regression_page, "size", QUOTED), (classification_page, "long", "noise")
    ):  # fmt: skip
        rows = {row[0]: value(row[1]) for row in Tables(page).tables["Importance of columns"][1:]}
        assert list(rows.values()) == sorted(rows.values(), reverse=True)
        assert rows[strong] > 0.3
        assert abs(rows[weak]) < 0.1 * rows[strong]


# ------------------------------------------------------------------------- unusual occasions


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
        assert f"These rows have no known {target}" in text
        assert not cards(page)
        for heading in ("Data", "Rows to look at", "What the model goes by", "How the model"):
            assert heading in text
        assert "Calibration" not in text
        tables = Tables(page).tables
        assert {row[-3] for row in tables["Most unusual rows"][1:]} == {"–"}
        rises = [value(row[1]) for row in tables["Importance of columns"][1:]]
        assert rises[0] > 0  # predictions move, even if nobody knows whether they are good


@pytest.mark.usefixtures("undrawn")
def test_rows_without_target_are_left_out_of_measures(regressor, tmp_path):
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
    assert "classes that there were not in training: tulip." in text_of(page)


def test_one_row_is_enough(regressor, classifier, tmp_path):
    page = written(regressor, flats(1, 1), "rent", tmp_path)
    assert cards(page)["Variance explained (R²)"] == "–"
    assert value(cards(page)["Coverage of 90 % intervals"]) in (0, 100)
    assert "On 1 row, " in text_of(page)
    for other in (page, written(classifier, flowers(1, 1), "kind", tmp_path)):
        assert not re.search(r"\b(nan|inf)\b", text_of(other), re.IGNORECASE)
        assert "NaN" not in other


def test_columns_that_are_constant_or_empty_in_these_rows_are_no_trouble(
    regressor, classifier, tmp_path
):
    frame = flats(40, 1).assign(size=50.0, town="Ulm", since=pd.Timestamp("2005-01-01"))
    frame[QUOTED] = np.nan
    page = written(regressor, frame, "rent", tmp_path)
    rows = {row[0]: row[3] for row in Tables(page).tables["Columns of the table"][1:]}
    assert rows["size"] == "always 50"
    assert rows[QUOTED] == "none"
    assert "Shown are 3 of 4 columns" in text_of(page)
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)
    written(classifier, flowers(40, 1).assign(long=1.0, colour="green"), "kind", tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_ignored_columns_may_have_gaps_of_all_kinds(tmp_path):
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


@pytest.mark.usefixtures("undrawn")
def test_a_constant_target_has_no_variance_to_explain(regressor, tmp_path):
    page = written(regressor, flats(40, 1).assign(rent=1000.0), "rent", tmp_path)
    assert cards(page)["Variance explained (R²)"] == "–"
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_of_many_columns_the_most_important_have_figures(wide_page):
    text, tables = text_of(wide_page), Tables(wide_page).tables
    assert "Shown are 12 of 50 columns" in text
    assert wide_page.count('aria-label="Average predictions') == 12
    importance = tables["Importance of columns"][1:]
    assert importance[0][0] == f"{'x' * 39}…{'x' * 20}"
    assert len(importance) == 25
    assert "25 columns of less importance are not listed" in text
    assert len(tables["Columns of the table"]) == 52
    assert len(wide_page) < 400_000


@pytest.mark.usefixtures("undrawn")
def test_columns_without_names_have_those_of_the_frame(wide, wide_page, tmp_path):
    frame = wide_table(60)
    numbered = frame.set_axis(range(51), axis=1)
    page = written(wide, numbered, "50", tmp_path)
    assert cards(page) == {
        name: shown.replace("y", "50") for name, shown in cards(wide_page).items()
    }
    assert Tables(page).tables["Importance of columns"][1][0] == "49"
    with pytest.raises(ValueError, match="50 columns without names, and the table has 51"):
        write_report(wide, frame.assign(more=0), "y", tmp_path / "report.html")


def test_letters_of_all_scripts_and_many_levels_are_drawn(crowded_page):
    figure = re.findall(r"<svg[^>]*by città.*?</svg>", crowded_page, re.DOTALL)[0]
    texts = re.findall(r"<text[^>]*>(.*?)</text>", figure)
    assert {"東京", "🙂", "long long lon…g long"} <= set(texts)
    levels = [text for text in texts if "%" not in text]
    assert len(levels) == 8  # of 23


def test_many_classes_share_the_confusion_matrix(crowded_page):
    header, *rows = Tables(crowded_page).tables["Confusion matrix"]
    assert len(header) == 13
    assert header[-1] == "9 others"
    counts = np.array([[int(count) for count in row[1:]] for row in rows])
    assert counts.sum(1).tolist() == [5] * 11 + [45]
    assert "14 more classes are not drawn" in text_of(crowded_page)


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


# ------------------------------------------------------------------------------------- safety


def test_names_are_text_and_never_markup(regression_page, classification_page):
    for page in (regression_page, classification_page):
        assert "<script" not in page.lower()
        assert html.escape(EVIL) in page
        assert EVIL in text_of(page)
    assert "a &amp; &#34;b&#34; $x$" in regression_page
    assert QUOTED in text_of(regression_page)
    figure = re.findall(r"<svg[^>]*by town.*?</svg>", regression_page, re.DOTALL)[0]
    assert "&lt;script&gt;" in figure


@pytest.mark.usefixtures("undrawn")
def test_a_title_is_text(binary, tmp_path):
    page = written(binary, flowers(30, 1, 2), "kind", tmp_path, title=f'{EVIL}" onload="x')
    assert "<script" not in page
    assert f"<h1>{html.escape(EVIL)}&#34; onload=&#34;x</h1>" in page


def test_a_page_needs_nothing_else(regression_page, classification_page):
    for page in (regression_page, classification_page):
        for outside in ("http", "src=", "<link", "@import", "url(", "<script", "xlink", "<image"):
            assert outside not in page.replace(html.escape(EVIL), ""), outside


def test_the_same_model_and_rows_lead_to_the_same_page(regressor, regression_page, tmp_path):
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "red"}):
        before = dict(mpl.rcParams)
        again = written(regressor, flats(120, 1), "rent", tmp_path)
        assert dict(mpl.rcParams) == before
    assert undated(again) == undated(regression_page)


@pytest.mark.parametrize(
    "page", ["regression_page", "classification_page", "wide_page", "crowded_page"]
)
def test_pages_are_well_formed_and_told_to_those_who_cannot_see_them(page, request):
    found = Tables(request.getfixturevalue(page))
    assert found.unbalanced == []
    assert found.open == []
    attributes = found.attributes
    ids = [tag["id"] for _, tag in attributes if "id" in tag]
    assert len(ids) == len(set(ids))
    links = [tag["href"] for _, tag in attributes if "href" in tag]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert {tag["aria-labelledby"] for _, tag in attributes if "aria-labelledby" in tag} <= set(ids)
    assert all(tag.get("scope") for name, tag in attributes if name == "th")
    for name, tag in attributes:
        if name == "svg":
            assert tag.get("aria-hidden") or (tag["role"] == "img" and tag["aria-label"])
    headings = [int(name[1]) for name, _ in attributes if re.fullmatch("h[1-6]", name)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert max(np.diff(headings)) <= 1


def test_figures_have_no_colours_but_those_of_the_page(regression_page, classification_page):
    for page in (regression_page, classification_page):
        figures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
        variables = set(re.findall(r"var\(--(\w+)\)", "".join(figures)))
        for figure in figures:
            assert not re.search(r"#[0-9a-f]{3,6}\b(?!\")", re.sub(r'href="[^"]*"', "", figure))
        light, dark = page.split("prefers-color-scheme: dark")[:2]
        for name in variables:
            assert f"--{name}:" in light.split("</style>")[0]
            assert f"--{name}:" in dark.split("</style>")[0]


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


# ------------------------------------------------------------------------------------- errors


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


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib", "narwhals", "sklearn", "torchmetrics"])
def test_a_missing_library_is_named_with_its_extra(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    for module in ("lastlayer.report", "lastlayer.tabular.report"):
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ImportError, match=r"pip install 'lastlayer\[report\]'"):
        importlib.import_module("lastlayer.report")


# ------------------------------------------------------------------------------------ browser

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# Texts of figures that touch each other or leave their figure, and how wide the page is.
LOOK = """<script>
const wrong = [];
for (const figure of document.querySelectorAll("figure svg")) {
  const edge = figure.getBoundingClientRect();
  const boxes = [...figure.querySelectorAll("text")].map((one) => {
    const box = one.getBoundingClientRect();
    return {name: one.textContent, l: box.left, r: box.right, t: box.top, b: box.bottom};
  });
  boxes.forEach((one, at) => {
    if (one.l < edge.left - 3 || one.r > edge.right + 3 || one.t < edge.top - 3
        || one.b > edge.bottom + 3) wrong.push(one.name + " leaves");
    for (const two of boxes.slice(at + 1))
      if (one.l + 1 < two.r && two.l + 1 < one.r && one.t + 3 < two.b && two.t + 3 < one.b)
        wrong.push(one.name + " touches " + two.name);
  });
}
const root = document.documentElement;
document.title = "seen:" + JSON.stringify({wrong, wide: root.scrollWidth > innerWidth});
</script>"""


def browse(page: Path, folder: Path, *options: str) -> str:
    assert CHROMIUM
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}", *options,
        page.as_uri(),
    ]  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(
    ("page", "size"),
    [
        ("regression_page", "400,900"),
        ("regression_page", "1200,900"),
        ("classification_page", "400,900"),
        ("wide_page", "400,900"),
        ("crowded_page", "400,900"),
    ],
)
def test_a_browser_shows_all_texts_apart_and_none_beside_the_page(page, size, request, tmp_path):
    path = tmp_path / "page.html"
    text = request.getfixturevalue(page).replace("</body>", f"{LOOK}</body>")
    path.write_text(text, encoding="utf-8")
    shown = browse(path, tmp_path, f"--window-size={size}", "--dump-dom")
    assert "<h2" in shown
    assert 'title>seen:{"wrong":[],"wide":false}' in shown, re.findall("<title>.*?</title>", shown)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_paints_light_and_dark(regression_page, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(regression_page, encoding="utf-8")
    shades = {}
    for name, scheme in (("dark", 0), ("light", 1)):
        picture = tmp_path / f"{name}.png"
        setting = f"--blink-settings=preferredColorScheme={scheme}"
        browse(path, tmp_path, setting, "--window-size=800,1200", f"--screenshot={picture}")
        image = mpl.image.imread(picture)[..., :3]
        assert image.std() > 0.05  # not blank
        shades[name] = float(np.median(image))
    assert shades["dark"] < 0.2
    assert shades["light"] > 0.95


@pytest.mark.usefixtures("undrawn")
def test_many_classes_take_fewer_rows(classifier, tmp_path, monkeypatch) -> None:
    frame = flowers(120, 1)
    monkeypatch.setattr(influence, "FEWEST_ROWS", 20)
    for most, rows in ((10_000, 120), (90, 30), (9, 20)):  # of probabilities; there are 3 each
        monkeypatch.setattr(influence, "MOST_PROBABILITIES", most)
        page = text_of(written(classifier, frame, "kind", tmp_path))
        assert f"with the others as they are in {rows} rows" in page
