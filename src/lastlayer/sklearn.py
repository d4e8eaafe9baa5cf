"""Estimators for tables, with scikit-learn's interface; see `lastlayer.tabular.estimators`."""

from .tabular.estimators import LastLayerClassifier, LastLayerRegressor
from .tabular.files.folder import load, save

__all__ = ["LastLayerClassifier", "LastLayerRegressor", "load", "save"]
