"""Data and estimators that tests share."""

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_friedman1

from lastlayer.sklearn import LastLayerClassifier, LastLayerRegressor
from tests.helpers.estimators import QUICK


@pytest.fixture(scope="session")
def regression():
    return make_friedman1(240, noise=1.0, random_state=0)


@pytest.fixture(scope="session")
def regressor(regression):
    return LastLayerRegressor(**QUICK).fit(*regression)


@pytest.fixture(scope="session")
def classification():
    X, y = make_classification(240, n_informative=6, n_classes=3, random_state=0)
    return X, np.array(["high", "low", "mid"])[y]


@pytest.fixture(scope="session", params=["discriminative", "generative"])
def classifier(request, classification):
    return LastLayerClassifier(request.param, **QUICK).fit(*classification)
