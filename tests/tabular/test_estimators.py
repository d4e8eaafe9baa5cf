"""Estimators for tables: scikit-learn's own checks, and what they promise beyond them."""

import errno
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from mapie.classification import SplitConformalClassifier
from mapie.regression import SplitConformalRegressor
from sklearn.base import clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

from lastlayer.sklearn import LastLayerClassifier, LastLayerRegressor, load, save
from tests.helpers.estimators import QUICK, QUICKEST

ESTIMATORS = [
    LastLayerRegressor(**QUICKEST),
    LastLayerClassifier(**QUICKEST),
    LastLayerClassifier("generative", **QUICKEST),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_agrees(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def regression():
    return make_friedman1(240, noise=1.0, random_state=0)


@pytest.fixture(scope="module")
def regressor(regression):
    return LastLayerRegressor(**QUICK).fit(*regression)


@pytest.fixture(scope="module")
def classification():
    X, y = make_classification(240, n_informative=6, n_classes=3, random_state=0)
    return X, np.array(["high", "low", "mid"])[y]


@pytest.fixture(scope="module", params=["discriminative", "generative"])
def classifier(request, classification):
    return LastLayerClassifier(request.param, **QUICK).fit(*classification)


# ------------------------------------------------------------------------------- regression


def test_it_learns_and_its_intervals_cover(regressor):
    X, y = make_friedman1(500, noise=1.0, random_state=1)
    assert regressor.score(X, y) > 0.7
    lower, upper = regressor.predict_interval(X, 0.9).T
    covered = np.mean((lower <= y) & (y <= upper))
    assert abs(covered - 0.9) < 4 * math.sqrt(0.09 / 240)  # calibrated on 240 rows


def test_moments_intervals_and_densities_are_of_one_distribution(regressor, regression):
    X = regression[0][:20]
    mean, stddev = regressor.predict(X, return_std=True)
    predictive = regressor.predict_dist(X)
    np.testing.assert_allclose(predictive.mean[:, 0], mean)
    np.testing.assert_allclose(predictive.stddev[:, 0], stddev)
    grid = torch.linspace(-200, 200, 100_001)
    density = predictive[[0] * len(grid)].log_prob(grid).exp()
    np.testing.assert_allclose(torch.trapezoid(density, grid), 1, rtol=1e-4)
    np.testing.assert_allclose(torch.trapezoid(grid * density, grid), mean[0], rtol=1e-4)
    inside = (grid >= regressor.predict_interval(X)[0, 0]) & (
        grid <= regressor.predict_interval(X)[0, 1]
    )
    np.testing.assert_allclose(torch.trapezoid(density * inside, grid), 0.9, atol=2e-3)


def test_the_units_of_the_target_are_those_of_predictions(regression):
    X, y = regression
    one, other = (LastLayerRegressor(**QUICK).fit(X, target) for target in (y, 1000 * y - 7))
    (mean, stddev), (mean_2, stddev_2) = (m.predict(X, return_std=True) for m in (one, other))
    np.testing.assert_allclose(mean_2, 1000 * mean - 7, rtol=1e-2)
    np.testing.assert_allclose(stddev_2, 1000 * stddev, rtol=1e-2)


def test_draws_have_the_predicted_moments_and_rows_alike_err_alike(regressor, regression):
    X = np.repeat(regression[0][:5], 2, 0)
    draws = regressor.sample_y(X, 20_000)
    mean, stddev = regressor.predict(X, return_std=True)
    assert draws.shape == (10, 20_000)
    assert np.abs(draws.mean(1) - mean).max() < 5 * stddev.max() / math.sqrt(20_000)
    np.testing.assert_allclose(draws.std(1), stddev, rtol=0.05)
    predictive = regressor.predict_dist(X)
    share = predictive.epistemic_variance / predictive.variance
    pairs = [np.corrcoef(draws[at], draws[at + 1])[0, 1] for at in range(0, 10, 2)]
    # the factor of the variance is each row's own, so that correlation is a little less
    assert (np.array(pairs) < share[::2, 0].numpy() + 0.03).all()
    assert (np.array(pairs) > 0.7 * share[::2, 0].numpy() - 0.03).all()
    np.testing.assert_array_equal(regressor.sample_y(X, 3), regressor.sample_y(X, 3))


def test_partial_fit_is_the_posterior_given_old_and_new_rows(regression):
    X, y = regression
    model = LastLayerRegressor(**QUICK).fit(X[:200], y[:200])
    head: Any = model.model_.network.head
    units = model.model_.units
    features = model.model_.features(torch.from_numpy(X[200:])).detach()
    features = torch.cat([features, torch.ones(40, 1)], 1)  # the bias
    noise = head.noise.variance().item()
    precision = torch.linalg.inv(head.covariance.dense()[0]).detach()
    target = units.remove(torch.from_numpy(y[200:, None]))
    new = precision + features.mT @ features / noise
    expected = torch.linalg.solve(
        new, precision @ head.mean.detach()[0] + (features.mT @ target)[:, 0] / noise
    )
    model.partial_fit(X[200:220], y[200:220]).partial_fit(X[220:], y[220:])
    torch.testing.assert_close(head.mean.detach()[0], expected)
    torch.testing.assert_close(head.covariance.dense()[0].detach(), torch.linalg.inv(new))


def test_partial_fit_counts_weights_as_repetitions(regression):
    X, y = regression
    base = LastLayerRegressor(**QUICK).fit(X[:200], y[:200])
    again = LastLayerRegressor(**QUICK).fit(X[:200], y[:200])
    base.partial_fit(X[200:], y[200:], sample_weight=np.full(40, 2))
    again.partial_fit(np.repeat(X[200:], 2, 0), np.repeat(y[200:], 2))
    np.testing.assert_allclose(base.predict(X), again.predict(X), rtol=1e-6)


def test_several_targets_are_predicted_together(regression):
    X, y = regression
    both = np.stack([y, -2 * y], 1)
    model = LastLayerRegressor(**QUICK).fit(X, both)
    mean, stddev = model.predict(X, return_std=True)
    assert mean.shape == stddev.shape == both.shape
    assert model.predict_interval(X).shape == (*both.shape, 2)
    assert model.sample_y(X, 3).shape == (*both.shape, 3)
    assert model.score(X, both) > 0.7
    with pytest.raises(ValueError, match="as in training"):
        model.partial_fit(X, y)


@pytest.mark.slow
def test_early_stopping_tries_lengths_and_takes_the_best(regression):
    quick = QUICK | {"early_stopping": True, "max_epochs": 128}
    model = LastLayerRegressor(**quick).fit(*regression)
    tried = [one["epochs"] for one in model.tried_]
    assert tried == [64, 128][: len(tried)]
    best = min(model.tried_, key=lambda one: one["nll"])
    assert (best["epochs"], best["weight_decay"]) == (model.num_epochs_, model.weight_decay_)
    scale = model.model_.units.scale.log().item()
    assert model.held_out_scores_["nll"] == pytest.approx(best["nll"] + scale, rel=1e-4)
    assert model.num_epochs_ in tried


@pytest.mark.parametrize(("many", "epochs"), [(100, 12), (50, 6), (1, 1)])
def test_training_of_many_rows_is_no_longer(regression, monkeypatch, many, epochs):
    monkeypatch.setattr("lastlayer.tabular.estimators._base.MOST_EPOCHS", 12)
    monkeypatch.setattr("lastlayer.tabular.estimators._base.MANY_ROWS", many)
    X, y = regression
    model = LastLayerRegressor(**QUICK | {"max_epochs": "auto"}).fit(X[:100], y[:100])
    assert model.num_epochs_ == epochs


@pytest.mark.parametrize(("enough", "held_out"), [(30, 50), (60, 75), (1000, 100)])
def test_parts_are_held_out_until_there_are_enough_rows(regression, monkeypatch, enough, held_out):
    X, y = regression
    monkeypatch.setattr("lastlayer.tabular.estimators._base.ENOUGH_HELD_OUT", enough)
    seen: list[int] = []

    def threshold(scores: torch.Tensor, rate: float) -> float:
        seen.append(len(scores))
        return 0.0

    monkeypatch.setattr("lastlayer.tabular.estimators._base.threshold", threshold)
    LastLayerRegressor(**QUICKEST | {"num_folds": 4}).fit(X[:100], y[:100])
    assert seen == [held_out]


@pytest.mark.slow
def test_no_hidden_layer_is_linear_regression():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((200, 3))
    y = X @ [1.0, -2.0, 3.0] + 5 + 0.1 * generator.standard_normal(200)
    options = QUICK | {"hidden_layers": (), "max_epochs": 200}
    model = LastLayerRegressor(**options).fit(X, y)
    np.testing.assert_allclose(model.predict(X), X @ [1.0, -2.0, 3.0] + 5, atol=0.1)


# --------------------------------------------------------------------------- classification


def test_probabilities_are_of_the_classes_in_order(classifier, classification):
    X, y = classification
    probs = classifier.predict_proba(X)
    assert classifier.classes_.tolist() == ["high", "low", "mid"]
    np.testing.assert_allclose(probs.sum(1), 1)
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[probs.argmax(1)])
    assert classifier.score(X, y) > 0.7
    np.testing.assert_allclose(classifier.predict_dist(X).probs(), probs)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["a", None, "b"], object),
        np.array(["a", np.nan, "b"], object),
        np.array([1.0, np.nan, 2.0]),
        pd.Series(["a", pd.NA, "b"], dtype="string"),
        pd.Series([1, pd.NA, 2], dtype="Int64"),
        pl.Series(["a", None, "b"]),
        pl.Series([True, None, False]),
    ],
)
def test_missing_labels_are_refused(labels):
    with pytest.raises(ValueError, match="Input y contains NaN: 1 of 3 labels are missing; leave"):
        LastLayerClassifier().fit([[0.0], [1.0], [2.0]], labels)


def test_drawn_labels_have_the_predicted_shares(classifier, classification):
    X = classification[0][:5]
    draws = classifier.sample_y(X, 4000)
    shares = np.stack([(draws == label).mean(1) for label in classifier.classes_], 1)
    assert np.abs(shares - classifier.predict_proba(X)).max() < 5 * 0.5 / math.sqrt(4000)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_draws_are_counted_in_whole_numbers(regressor, regression, count):
    X, y = regression
    classifier = LastLayerClassifier(**QUICKEST).fit(X[:40], y[:40] > y[:40].mean())
    for model in (regressor, classifier):
        with pytest.raises(ValueError, match="n_samples must be an integer of at least 1, got"):
            model.sample_y(X[:3], count)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_layers": 50}, r"width of each layer, got 50; pass a tuple, as \(50, 50\)"),
        ({"hidden_layers": "50,50"}, r"width of each layer, got '50,50'; pass a tuple"),
        ({"hidden_layers": (5.5,)}, "each width in hidden_layers must be an integer of at least 1"),
        ({"hidden_layers": (0,)}, "each width in hidden_layers must be an integer of at least 1"),
        ({"weight_decays": 30.0}, r"the numbers to try, got 30\.0; pass a tuple, as \(30\.0,\)"),
        ({"weight_decays": ("a",)}, "each of weight_decays must be a finite number, got 'a'"),
        ({"weight_decays": (-1.0,)}, "weight_decays are numbers of at least zero"),
    ],
)
def test_settings_that_cannot_be_say_what_should_be(regression, options, message):
    with pytest.raises(ValueError, match=message):
        LastLayerRegressor(**QUICKEST | options).fit(*regression)


@pytest.mark.slow
def test_a_generative_last_layer_learns_from_more_rows(classification):
    X, y = classification
    first = LastLayerClassifier("generative", **QUICK).fit(X[:120], y[:120])
    again = LastLayerClassifier("generative", **QUICK).fit(X[:120], y[:120])
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))
    first.partial_fit(X[120:], y[120:])
    again.partial_fit(X[180:], y[180:]).partial_fit(X[120:180], y[120:180])
    np.testing.assert_allclose(first.predict_proba(X), again.predict_proba(X), rtol=1e-6)
    head: Any = first.model_.network.head
    assert head.concentration.sum().item() == pytest.approx(240 + 3)  # counts, and one each before
    with pytest.raises(ValueError, match=r"not in training: \['other'\]"):
        first.partial_fit(X[:1], ["other"])


def test_a_discriminative_one_says_that_it_cannot():
    assert not hasattr(LastLayerClassifier(), "partial_fit")
    assert hasattr(LastLayerClassifier("generative"), "partial_fit")


# -------------------------------------------------------------------------------- strangers


def test_rows_far_from_training_are_unusual(regressor, classifier, regression, classification):
    for model, X in ((regressor, regression[0]), (classifier, classification[0])):
        usual, unusual = model.ood_score(X), model.ood_score(X + 10)
        assert (unusual > model.ood_threshold_).all()
        assert np.mean(usual > model.ood_threshold_) < 0.03


def test_the_threshold_lets_through_what_it_says():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((400, 4))
    model = LastLayerRegressor(**QUICK | {"false_alarm_rate": 0.1}).fit(X, X[:, 0])
    flagged = np.mean(model.ood_score(generator.standard_normal((4000, 4))) > model.ood_threshold_)
    assert abs(flagged - 0.1) < 4 * math.sqrt(0.09 / 400)


# ----------------------------------------------------------------------------------- frames


def table(rows=150):
    generator = np.random.default_rng(0)
    town = generator.choice(["Ulm", "Bonn", "Köln"], rows)
    size = generator.uniform(20, 200, rows)
    price = 3 * size + 100 * (town == "Bonn") + 5 * generator.standard_normal(rows)
    size[generator.random(rows) < 0.1] = np.nan
    return {"town": town.tolist(), "size": size, "id": [f"no {at}" for at in range(rows)]}, price


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


# ------------------------------------------------------------------------------ composition


@pytest.mark.slow
def test_they_work_in_pipelines_searches_and_cross_validation(regression):
    X, y = regression
    pipeline = make_pipeline(PolynomialFeatures(2), LastLayerRegressor(**QUICK))
    name = "lastlayerregressor__hidden_layers"
    search = GridSearchCV(pipeline, {name: [(), (10,)]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.5
    assert len(cross_val_score(LastLayerRegressor(**QUICK), X, y, cv=2)) == 2


def test_mapie_makes_their_intervals_and_sets_conformal(regression, classification):
    X, y = regression
    conformal = SplitConformalRegressor(LastLayerRegressor(**QUICK), 0.9, prefit=False)
    conformal.fit(X[:120], y[:120]).conformalize(X[120:], y[120:])
    new, target = make_friedman1(1000, noise=1.0, random_state=1)
    lower, upper = conformal.predict_interval(new)[1][:, :, 0].T
    spread = math.sqrt(0.09 / 120 + 0.09 / 1000)
    assert abs(np.mean((lower <= target) & (target <= upper)) - 0.9) < 4 * spread
    X, y = classification
    sets = SplitConformalClassifier(LastLayerClassifier(**QUICK), 0.9, prefit=False)
    sets.fit(X[:120], y[:120]).conformalize(X[120:], y[120:])
    assert sets.predict_set(X)[1].shape == (240, 3, 1)


@pytest.mark.slow
def test_an_integer_seed_makes_fits_the_same_and_the_caller_keeps_random_numbers(regression):
    X, y = regression
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    one = LastLayerRegressor(**QUICK).fit(X, y).predict(X)
    torch.testing.assert_close(torch.rand(2), expected)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_array_equal(
        one, clone(LastLayerRegressor(**QUICK)).fit(X[order], y[order]).predict(X)
    )
    assert not np.array_equal(
        one, LastLayerRegressor(**QUICK | {"random_state": 1}).fit(X, y).predict(X)
    )


# ---------------------------------------------------------------------------------- folders


def test_a_saved_model_predicts_the_same(
    tmp_path, regressor, classifier, regression, classification
):
    for model, X in ((regressor, regression[0]), (classifier, classification[0])):
        folder = tmp_path / type(model).__name__
        save(model, folder, about={"made": "here"})
        save(model, folder)  # again, over the first
        again = load(folder)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_array_equal(again.ood_score(X), model.ood_score(X))
        assert again.ood_threshold_ == model.ood_threshold_
        assert again.get_params() == model.get_params()
        assert {path.name for path in folder.iterdir()} == {"model.json", "model.safetensors"}
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_loaded_model_learns_on(tmp_path, regression):
    X, y = regression
    model = LastLayerRegressor(**QUICK).fit(X[:200], y[:200])
    save(model, tmp_path / "model")
    again = load(tmp_path / "model").partial_fit(X[200:], y[200:])
    np.testing.assert_allclose(again.predict(X), model.partial_fit(X[200:], y[200:]).predict(X))


def test_frames_are_read_as_before(tmp_path):
    values, price = table()
    model = LastLayerRegressor(**QUICK).fit(pd.DataFrame(values), price)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(
        again.predict(pl.DataFrame(values)), model.predict(pd.DataFrame(values))
    )


def test_a_folder_that_is_not_a_model_is_left_alone(tmp_path, regressor):
    (tmp_path / "letters.txt").write_text("dear")
    for other in ("{}", '{"format": 1}'):
        with pytest.raises(FileExistsError, match="holds more than a model"):
            save(regressor, tmp_path)
        assert (tmp_path / "letters.txt").read_text() == "dear"
        (tmp_path / "model.json").write_text(other)
    (tmp_path / "letters.txt").unlink()
    with pytest.raises(FileExistsError, match="holds more than a model"):
        save(regressor, tmp_path)


def test_an_interruption_leaves_the_older_model(tmp_path, regressor, monkeypatch):
    folder = tmp_path / "model"
    save(regressor, folder)
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Any:
        if target == folder and not self.name.endswith("-old"):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(regressor, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    load(folder)


def test_a_link_to_a_model_stays_one(tmp_path, regressor):
    (tmp_path / "link").symlink_to(tmp_path / "model")
    save(regressor, tmp_path / "link")
    save(regressor, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "model"]


def test_a_gap_that_never_was_is_unusual(regressor, regression):
    rows = regression[0][:3].copy()
    rows[1, 0] = np.nan
    unusual = regressor.ood_score(rows) - regressor.ood_score(regression[0][:3])
    assert unusual[1] > 900
    assert unusual[[0, 2]].tolist() == [0, 0]


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_model_that_may_not_be_read_is_not_called_damaged(tmp_path, regressor, monkeypatch, name):
    save(regressor, tmp_path / "model")
    plain = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return plain(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(PermissionError, match=rf"cannot read .*{name}: Permission denied; see"):
        load(tmp_path / "model")


def test_damaged_and_newer_models_say_so(tmp_path, regressor):
    with pytest.raises(NotFittedError):
        save(LastLayerRegressor(), tmp_path / "model")
    with pytest.raises(FileNotFoundError, match="no model folder"):
        load(tmp_path / "model")
    folder = tmp_path / "model"
    save(regressor, folder)
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(description | {"format": 99, "lastlayer": "9.0"}))
    with pytest.raises(ValueError, match=r"written by lastlayer 9\.0.*upgrade"):
        load(folder)
    (folder / "model.json").write_text(json.dumps(description)[:-20])
    with pytest.raises(ValueError, match="not a model that can be read"):
        load(folder)
    (folder / "model.json").write_text(json.dumps(description))
    tensors = (folder / "model.safetensors").read_bytes()
    flipped = tensors[:-3] + bytes([tensors[-3] ^ 1]) + tensors[-2:]
    for damaged in (tensors[:-8], flipped):
        (folder / "model.safetensors").write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"is damaged: model\.safetensors is missing; train"):
        load(folder)
    (folder / "model.safetensors").write_bytes(tensors)
    load(folder)
    changes: list[Any] = [{"about": None}, {"fitted": {}}, {"columns": []}, {"format": 1e999}]
    for change in changes:
        (folder / "model.json").write_text(json.dumps(description | change))
        with pytest.raises(ValueError, match=r"damaged|not a model that can be read"):
            load(folder)
