"""Estimators for tables, with scikit-learn's interface.

    model = LastLayerRegressor().fit(X, y)
    mean, stddev = model.predict(X, return_std=True)
    lower, upper = model.predict_interval(X, level=0.9).T

X is an array, or a pandas or polars frame, whose categories, dates and missing values are handled.
"""

try:
    import narwhals  # noqa: F401
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "lastlayer.sklearn needs scikit-learn and narwhals: pip install 'lastlayer[sklearn]'"
    ) from error

from .classifier import LastLayerClassifier
from .regressor import LastLayerRegressor

__all__ = ["LastLayerClassifier", "LastLayerRegressor"]
