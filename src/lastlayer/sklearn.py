"""Estimators for tables, with scikit-learn's interface; see `lastlayer.tabular.estimators`."""

from .tabular.estimators import LastLayerClassifier, LastLayerRegressor, load, save

__all__ = ["LastLayerClassifier", "LastLayerRegressor", "load", "save"]
