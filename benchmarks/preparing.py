"""What scikit-learn's estimators need done to a table before they take it."""

from __future__ import annotations

from typing import Any

from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


def prepared(frame: Any) -> Any:
    """Means for missing numbers and their indicators, standard units, indicators of levels."""
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    levels = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer(
        (numbers, make_column_selector(dtype_include=["number", "bool"])),
        (levels, make_column_selector(dtype_exclude=["number", "bool"])),
    )
