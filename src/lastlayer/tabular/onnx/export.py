"""Writing an estimator as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from sklearn.utils.validation import check_is_fitted

from ... import __version__
from ..._disk import replacing
from ..estimators._base import LastLayerEstimator
from ..files.codec import dumps
from .check import compare, typical_codes
from .graph import Graph, translate

FORMAT = 1
TOLERANCE = 1e-5  # of differences between a file and its estimator

CODES = {
    "number": "the number; 1 for true, 0 for false; NaN if missing",
    "date": "days since 1970-01-01 in UTC, with fractions; of a duration, days; of a time of day, "
    "the fraction of the day; NaN if missing",
    "category": "the position in levels, from 0, of the value as text; -1 for other values; NaN if "
    "missing; integers have no decimal point as text",
    "ignored": "has no code",
}


class Exported(NamedTuple):
    """A file that was written, and its differences from the estimator."""

    path: Path
    differences: dict[str, float]  # the largest of each output, measured as `export_onnx` says


def export_onnx(estimator: LastLayerEstimator, path: str | Path, *, level: float = 0.9) -> Exported:
    """Write a trained estimator as an ONNX file, checked against the estimator.

    onnxruntime runs the file on synthetic rows: typical ones, some with missing values, new
    category levels, or numbers a thousand standard deviations away; many at once and single ones.
    Differences are measured such that units do not matter: those of mean, lower and upper end in
    standard deviations of the prediction, but no finer than float64 resolves; those of the variance
    relative to it; those of probabilities in absolute value; those of the OOD score, which is in
    nats, relative to it where it exceeds one. If anything fails, an older file stays as it was.

    Args:
        estimator: trained.
        path: of the file, which is replaced if there is one.
        level: probability of the central interval, for regression.

    Returns:
        The path of the file, and the largest difference of each output.

    Raises:
        RuntimeError: if an output differs by more than 1e-5; the file is not written then.
        TypeError: if the predictive has no form in ONNX.
    """
    if not isinstance(estimator, LastLayerEstimator):
        raise TypeError(
            "export_onnx takes a LastLayerRegressor or a LastLayerClassifier, got "
            f"{type(estimator).__name__}; of a pipeline or a search, pass the estimator inside"
        )
    check_is_fitted(estimator, "model_")
    path, codes = Path(path), typical_codes(estimator, np.random.default_rng(0), 250)
    graph = Graph(estimator, level, codes)
    with replacing(path) as partial:
        file = translate(graph, codes[:3])
        onnx.helper.set_model_props(file, _metadata(estimator, level))
        partial.write_bytes(file.SerializeToString())
        onnx.checker.check_model(str(partial), full_check=True)
        differences = compare(partial, estimator, level)
        if max(differences.values()) > TOLERANCE:
            listed = ", ".join(f"{name} {value:.3g}" for name, value in differences.items())
            raise RuntimeError(
                f"predictions of the ONNX file differ from those of the model by {listed}, where "
                f"{TOLERANCE:g} is allowed; {path} was not written"
            )
    return Exported(path, differences)


def _metadata(estimator: Any, level: float) -> dict[str, str]:
    """What a reader needs besides the graph, as JSON."""
    metadata: dict[str, Any] = {
        "format": FORMAT,
        "lastlayer": __version__,
        "kind": estimator.task,
        "columns": estimator.columns_.to_json(),
        "codes": CODES,
        "ood_threshold": estimator.ood_threshold_,
    }
    if estimator.task == "regression":
        metadata |= {"target_shape": estimator.target_shape_, "interval_level": level}
    else:
        metadata |= {"classes": estimator.classes_}
    return {name: dumps(value, portable=True) for name, value in metadata.items()}
