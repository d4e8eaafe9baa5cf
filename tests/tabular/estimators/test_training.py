"""Cross-validation, OOD thresholds and frames."""

import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from lastlayer.sklearn import LastLayerRegressor, load, save
from lastlayer.tabular.estimators._settings import PRESETS, Plan, ended_early
from tests.helpers.estimators import QUICK, QUICKEST
from tests.helpers.prices import table


@pytest.mark.slow
def test_early_stopping_tries_numbers_of_epochs_and_takes_the_best(regression):
    quick = QUICK | {"early_stopping": True, "max_epochs": 128, "noise": "constant"}
    model = LastLayerRegressor(**quick).fit(*regression)
    tried = [one["epochs"] for one in model.tried_]
    assert tried == [64, 128][: len(tried)]
    best = min(model.tried_, key=lambda one: one["nll"])
    assert (best["epochs"], best["weight_decay"]) == (model.num_epochs_, model.weight_decay_)
    scale = model.model_.units.scale.log().item()
    assert model.held_out_scores_["nll"] == pytest.approx(best["nll"] + scale, rel=1e-4)
    assert model.num_epochs_ in tried


def test_training_of_many_rows_has_fewer_epochs_but_eight():
    rows = (100, 1000, 5000, 10_000, 10**6)
    plans = {
        name: [Plan.of(count, name, 5, "auto", "auto", "auto") for count in rows]
        for name in ("fast", "default", "best")
    }
    assert [plan.max_epochs for plan in plans["default"]] == [1024, 256, 32, 8, 8]
    assert [plan.batch_size for plan in plans["default"]] == [100, 125, 125, 154, 512]
    assert [plan.num_held_out for plan in plans["default"]] == [5, 5, 1, 1, 1]
    assert [len(plan.weight_decays) for plan in plans["default"]] == [2, 2, 1, 1, 1]
    for name, length in (("fast", 0.25), ("best", 4)):
        for plan, default in zip(plans[name], plans["default"], strict=True):
            assert plan.max_epochs == pytest.approx(length * default.max_epochs, rel=0.03)
    assert [plan.num_held_out for plan in plans["best"]] == [5, 5, 5, 3, 1]
    given = Plan.of(10**6, "default", 3, 64, 7, (1.0, 2.0))
    assert given[:2] + given[2:5:2] == (3, 1, 64, 7)
    assert given.weight_decays == (1.0, 2.0)


@pytest.mark.parametrize(("enough", "held_out"), [(30, 50), (60, 75), (1000, 100)])
def test_folds_are_held_out_until_there_are_enough_rows(regression, monkeypatch, enough, held_out):
    X, y = regression
    monkeypatch.setitem(PRESETS, "fast", PRESETS["fast"]._replace(enough_held_out=enough))
    seen: list[int] = []

    def threshold(scores: torch.Tensor, rate: float) -> float:
        seen.append(len(scores))
        return 0.0

    monkeypatch.setattr("lastlayer.tabular.estimators._base.threshold", threshold)
    LastLayerRegressor(**QUICKEST | {"num_folds": 4}).fit(X[:100], y[:100])
    assert seen == [held_out]


def test_rows_far_from_training_are_unusual(regressor, classifier, regression, classification):
    for model, X in ((regressor, regression[0]), (classifier, classification[0])):
        usual, unusual = model.ood_score(X), model.ood_score(X + 10)
        assert (unusual > model.ood_threshold_).all()
        assert np.mean(usual > model.ood_threshold_) < 0.03


@pytest.mark.slow
def test_the_threshold_lets_through_what_it_says():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((400, 4))
    model = LastLayerRegressor(**QUICK | {"false_alarm_rate": 0.1}).fit(X, X[:, 0])
    flagged = np.mean(model.ood_score(generator.standard_normal((4000, 4))) > model.ood_threshold_)
    assert abs(flagged - 0.1) < 4 * math.sqrt(0.09 / 400)


def test_a_newly_missing_value_is_unusual(regressor, regression):
    rows = regression[0][:3].copy()
    rows[1, 0] = np.nan
    unusual = regressor.ood_score(rows) - regressor.ood_score(regression[0][:3])
    assert unusual[1] > 900
    assert unusual[[0, 2]].tolist() == [0, 0]


def test_rare_levels_do_not_hide_unusual_numbers():
    generator = np.random.default_rng(0)
    X = pd.DataFrame(generator.standard_normal((600, 3)), columns=[*"abc"])
    X["kind"] = ["common"] * 536 + [f"rare {at % 32}" for at in range(64)]
    model = LastLayerRegressor(noise="constant", **QUICKEST).fit(X, X["a"] + X["b"])
    assert np.mean(model.ood_score(X) > model.ood_threshold_) < 0.03
    far = X.assign(a=X["a"] + 8 * np.sign(X["a"]))
    assert np.mean(model.ood_score(far) > model.ood_threshold_) > 0.9


def test_intervals_cover_where_a_value_is_absent():
    generator = np.random.default_rng(0)
    X = pd.DataFrame(generator.standard_normal((900, 2)), columns=[*"ab"])
    X["kind"] = generator.choice(["low", "high"], 900)
    y = 2 * X["a"] + 0.1 * X["b"] + 3 * (X["kind"] == "high") + generator.standard_normal(900)
    model = LastLayerRegressor(noise="constant", **QUICK).fit(X[:400], y[:400])
    rows, known = X[400:], y[400:]
    variances: list[tuple[float, dict[str, Any]]] = [
        (0, {}),
        (4, {"a": np.nan}),
        (2.25, {"kind": "new"}),
        (6.25, {"a": np.nan, "kind": "new"}),
    ]
    for added, change in variances:
        lower, upper = model.predict_interval(rows.assign(**change)).T
        assert abs(np.mean((lower <= known) & (known <= upper)) - 0.9) < 0.07
        stddev = model.predict(rows.assign(**change), return_std=True)[1]
        np.testing.assert_allclose(stddev**2, 1 + added, rtol=0.35)
    draws = model.sample_y(rows[:20].assign(a=np.nan), 4000)
    np.testing.assert_allclose(draws.std(1) ** 2, 5, rtol=0.35)


@pytest.mark.slow
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_with_categories_and_missing_values_need_no_preparation(frame):
    values, price = table()
    X = frame(values)
    model = LastLayerRegressor(**QUICK | {"max_epochs": 200}).fit(X, price)
    known = ~np.isnan(values["size"])
    mean = model.predict(X)
    assert np.corrcoef(mean[known], price[known])[0, 1] > 0.99
    assert [column.kind for column in model.columns_.columns] == ["category", "number", "ignored"]
    assert model.feature_names_in_.tolist() == ["town", "size", "id"]
    new = frame({"town": ["Mars", None], "size": [100.0, 100.0], "id": ["x", "y"]})
    assert np.isfinite(model.predict(new)).all()


@pytest.mark.slow
def test_pandas_and_polars_are_the_same():
    values, price = table()
    one, two = (
        LastLayerRegressor(**QUICK).fit(f(values), price).predict(f(values))
        for f in (pd.DataFrame, pl.DataFrame)
    )
    np.testing.assert_array_equal(one, two)


def test_arrays_cannot_replace_a_frame_with_categories():
    values, price = table()
    model = LastLayerRegressor(**QUICK).fit(pd.DataFrame(values), price)
    with (
        pytest.warns(UserWarning, match="feature names"),
        pytest.raises(ValueError, match="'town' are not numbers"),
    ):
        model.predict(np.zeros((1, 3)))


@pytest.mark.parametrize("again", [False, True])
def test_an_interrupted_fit_leaves_an_estimator_that_is_not_fitted(regression, monkeypatch, again):
    """Not one with the columns of the new table and the network of the old one."""
    X, y = regression
    model = LastLayerRegressor(**QUICKEST)
    if again:
        model.fit(10 * X, y)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lastlayer.tabular.estimators._base.crossfit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    for method in (model.predict, model.predict_interval, model.ood_score, model.sample_y):
        with pytest.raises(NotFittedError):
            method(X)


def test_lazy_frames_are_refused_with_what_to_do():
    values, price = table()
    with pytest.raises(TypeError, match=r"lazy frame.*pass X.collect\(\)"):
        LastLayerRegressor(**QUICKEST).fit(pl.DataFrame(values).lazy(), price)


def test_useless_columns_are_left_out_and_the_model_is_saved_with_that(tmp_path):
    generator = np.random.default_rng(0)
    X = generator.standard_normal((400, 80))
    y = X[:, 0] + X[:, 1] + 0.5 * generator.standard_normal(400)
    model = LastLayerRegressor(noise="constant", **QUICK).fit(X[:200], y[:200])
    assert model.screened_
    assert model.score(X[200:], y[200:]) > 0.8
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X), model.predict(X))


@pytest.mark.slow
def test_bins_are_chosen_where_the_target_jumps_and_are_saved(tmp_path):
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, size=(2400, 2))
    y = np.floor(6 * X[:, 0]) % 2 + 0.1 * generator.standard_normal(2400)
    model = LastLayerRegressor(max_epochs=8, random_state=0).fit(X[:2200], y[:2200])
    assert model.num_bins_ == 2 * 16
    assert len(model.tried_) >= 4
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))
    assert loaded.hidden_layers_ == model.hidden_layers_


@pytest.mark.slow
def test_a_table_of_a_linear_function_needs_no_hidden_layers():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((120, 4))
    y = X @ [1.0, 2.0, 0.0, -1.0] + generator.standard_normal(120)
    model = LastLayerRegressor(max_epochs=32, random_state=0).fit(X, y)
    assert model.hidden_layers_ == ()
    expected = np.linalg.lstsq(np.c_[X, np.ones(120)], y, rcond=None)[0][:4]
    slopes = model.predict(np.eye(4)) - model.predict(np.zeros((1, 4)))
    np.testing.assert_allclose(slopes, expected, atol=0.1)


def test_a_limit_of_time_ends_a_search_and_a_limit_of_epochs_is_named(regression):
    quick = {name: QUICK[name] for name in ("hidden_layers", "preset", "random_state")}
    with pytest.warns(ConvergenceWarning, match="ended at the time limit"):
        model = LastLayerRegressor(time_limit=0.3, **quick).fit(*regression)
    assert model.search_ended_ == "time_limit"
    assert np.isfinite(model.predict(regression[0])).all()
    model.still_falling_, model.search_ended_ = 0.2, "max_epochs"
    warning = ended_early(model)
    assert warning is not None
    assert "still falling (by 0.2 the last time)" in warning
    model.still_falling_ = 0.001
    assert ended_early(model) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preset": "slow"}, "preset must be"),
        ({"time_limit": 0}, "time_limit must be a positive number of seconds"),
        ({"time_limit": math.nan}, "time_limit"),
    ],
)
def test_bad_settings_of_the_search_are_named(regression, change, message):
    with pytest.raises(ValueError, match=message):
        LastLayerRegressor(**QUICK | change).fit(*regression)
