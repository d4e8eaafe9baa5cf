"""Whether an ONNX file predicts as its estimator does, on rows made up for it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from torch import Tensor

from ..estimators._base import LastLayerEstimator
from ..predictions import Predictions

Array = NDArray[np.float64]

FARTHEST = 1e3  # standard deviations; much farther out torch's own probabilities lose digits


def compare(path: Path, estimator: LastLayerEstimator, level: float) -> dict[str, float]:
    """The largest difference of each output between a file and its estimator."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    largest = dict.fromkeys(names, 0.0)
    codes = trial_codes(estimator)
    for part in (codes, codes[:1], codes[-1:]):
        outputs, expected = session.run(names, {"codes": part}), _expected(estimator, part, level)
        for name, actual, (value, unit) in zip(names, outputs, expected, strict=True):
            largest[name] = max(largest[name], _difference(actual, value, unit))
    return largest


def _difference(actual: Array, expected: Array, unit: Array) -> float:
    """The largest difference; infinite if shapes differ, or just one of two values is a number."""
    if actual.shape != expected.shape:
        return math.inf
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    with np.errstate(invalid="ignore"):  # infinity less itself
        error = np.where(same, 0.0, np.abs(actual - expected) / unit)
    return float(np.where(np.isnan(error), math.inf, error).max())


def _expected(
    estimator: LastLayerEstimator, codes: Array, level: float
) -> list[tuple[Array, Array]]:
    """The estimator's own values of each output, and the units of differences."""
    predictions = Predictions(estimator.model_, codes)
    predictive, score = predictions.predictive, predictions.ood_score
    pairs: list[tuple[Tensor, Tensor]]
    if estimator.task == "regression":
        shape = (len(codes), *getattr(estimator, "target_shape_", ()))
        variance, stddev = predictive.variance, predictive.stddev
        ends = [predictive.mean, *predictive.interval(level)]
        # 2⁻³² of a value times the tolerance is about ten of its roundings
        mean, *interval = [(end, stddev.maximum(2**-32 * end.abs())) for end in ends]
        pairs = [mean, (variance, variance), *interval]
        pairs = [(value.reshape(shape), unit.reshape(shape)) for value, unit in pairs]
    else:
        probabilities = predictive.probs()
        pairs = [(probabilities, probabilities.new_ones(()))]
    arrays = [(value.numpy(), unit.numpy()) for value, unit in pairs]
    return [*arrays, (score, np.abs(score).clip(min=1))]


def trial_codes(estimator: LastLayerEstimator) -> Array:
    """Codes of rows of all kinds, (num_rows, num_columns)."""
    random = np.random.default_rng(0)
    usual, missing, new, far = (typical_codes(estimator, random, 250) for _ in range(4))
    categories = np.array(estimator.columns_.num_levels) > 0
    missing[random.random(missing.shape) < 0.3] = np.nan
    new[(random.random(new.shape) < 0.5) & categories] = -1
    middle, factor = np.median(usual, 0), FARTHEST ** random.random(far.shape)
    far = np.where(categories, far, middle + factor * (far - middle))
    empty = np.full_like(usual[:1], np.nan)
    return np.concatenate([usual, missing, new, far, empty])


def typical_codes(estimator: LastLayerEstimator, random: np.random.Generator, count: int) -> Array:
    """Codes of rows with the moments and levels of training, (count, num_columns)."""
    encoding: Any = estimator.model_.encoding
    numbers = (encoding.level == -1).cpu()
    parts = (encoding.source, encoding.location, encoding.scale)
    source, location, scale = (part.cpu()[numbers].numpy() for part in parts)
    levels = np.array(estimator.columns_.num_levels)
    codes: Array = random.integers(0, np.maximum(levels, 1), (count, len(levels))).astype(float)
    codes[:, source] = location + scale * random.standard_normal((count, len(source)))
    return codes
