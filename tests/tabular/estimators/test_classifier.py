"""The classifier: probabilities, labels and updates."""

import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from lastlayer.sklearn import LastLayerClassifier
from tests.helpers.estimators import QUICK


@pytest.mark.slow
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
