"""Class weights and thresholds, for classes that are rare."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score
from sklearn.utils import compute_class_weight

from lastlayer.sklearn import LastLayerClassifier, load, save
from lastlayer.tabular.estimators._deciding import best_threshold, class_weights
from tests.helpers.estimators import QUICKEST

LABELS = np.array([0.0, 0, 0, 1, 1, 2])
CLASSES = np.array(["a", "b", "c"])


def test_balanced_weights_are_those_of_scikit_learn_and_weights_are_repetitions():
    expected = compute_class_weight("balanced", classes=CLASSES, y=CLASSES[LABELS.astype(int)])
    np.testing.assert_allclose(class_weights("balanced", CLASSES, LABELS, np.ones(6)), expected)
    merged = class_weights("balanced", CLASSES, np.arange(3.0), np.array([3.0, 2, 1]))
    np.testing.assert_allclose(merged, expected)
    given = class_weights({"b": 5}, CLASSES, LABELS, np.ones(6))
    np.testing.assert_array_equal(given, [1, 5, 1])


@pytest.mark.parametrize(
    ("weight", "message"),
    [({"d": 1}, "not in y: \\['d'\\]"), ({"a": 0}, "positive"), (3, "'balanced' or a dict")],
)
def test_class_weights_that_make_no_sense_are_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        class_weights(weight, CLASSES, LABELS, np.ones(6))


@pytest.mark.parametrize(
    ("criterion", "score"), [("f1", f1_score), ("balanced_accuracy", balanced_accuracy_score)]
)
def test_no_threshold_scores_higher_than_the_best(criterion, score):
    random = np.random.default_rng(0)
    probs = random.integers(20, size=200) / 20  # with ties
    labels = (random.random(200) < 0.5 * probs).astype(float)
    weight = random.integers(1, 4, size=200).astype(float)
    best = best_threshold(criterion, probs, labels, weight)
    scores = [
        score(labels, probs >= at, sample_weight=weight) for at in [best, *np.arange(0, 1, 0.01)]
    ]
    assert scores[0] == pytest.approx(max(scores))


def test_a_rare_class_is_found_by_weights_and_thresholds_which_are_saved(tmp_path):
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 2))
    y = (X[:, 0] + random.normal(size=300) > 2).astype(int)  # one in ten
    found = {}
    choices: dict[str, dict[str, Any]] = {
        "plain": {},
        "weights": {"class_weight": {0: 1.0, 1: 9.0}},
        "threshold": {"threshold": "f1"},
    }
    for name, options in choices.items():
        model = LastLayerClassifier(**QUICKEST, **options).fit(X, y)
        found[name] = np.sum(model.predict(X) == 1)
        save(model, tmp_path / name)
        again = load(tmp_path / name)
        assert again.get_params()["class_weight"] == model.class_weight
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert found["weights"] > 2 * found["plain"]
    assert found["threshold"] > found["plain"]


def test_a_threshold_is_for_two_classes(classification):
    with pytest.raises(ValueError, match="threshold is for two classes, but y has 3"):
        LastLayerClassifier(threshold=0.2, **QUICKEST).fit(*classification)
