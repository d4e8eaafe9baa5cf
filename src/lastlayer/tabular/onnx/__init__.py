"""Trained estimators as ONNX files, which predict without Python and torch.

    export_onnx(LastLayerRegressor().fit(X, y), "model.onnx")

A file takes `codes`, float64 of shape (num_rows, num_columns), one for each column of the table
that is not ignored. It returns what the estimator does, in float64 and in the units of the target:

- regression: `mean`, `variance`, and `lower` and `upper`, the ends of the central interval, of
  shape (num_rows,), or (num_rows, num_targets) if y had columns;
- classification: `probabilities`, (num_rows, num_classes);
- both: `ood_score`, (num_rows,).

Codes are float64 because the seven digits of float32 are too few for a time, or for any number
that is far from zero compared with how much it varies. How to make codes of a row is in the
metadata of the file, each entry as JSON: `columns` in the order of the table, with their kinds and
levels; `codes`, what becomes of a value of each kind; `kind`, "regression" or "classification";
`target_shape` and `interval_level`, or `classes`; `ood_threshold`, null if no row is unusual;
`format` and `lastlayer`, the versions.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

try:
    import onnx
    import onnx.inliner
    import onnxruntime
    import onnxscript  # noqa: F401 - torch translates by it
except ImportError as error:
    raise ImportError(
        "lastlayer.onnx needs onnx, onnxruntime and onnxscript: pip install 'lastlayer[onnx]'"
    ) from error
if torch.__version__ < "2.6":  # no extra asks for another torch
    raise ImportError(f"lastlayer.onnx needs torch 2.6 or newer, got {torch.__version__}")

from sklearn.utils.validation import check_is_fitted

from ... import __version__
from ..._disk import replacing
from ...predictive import GaussianPredictive
from ..estimators import LastLayerRegressor
from ..estimators._base import LastLayerEstimator
from ..model import NEVER_SEEN, described
from .functions import DOMAIN, OPSET, erfc, ndtri, translations

FORMAT = 1
TOLERANCE = 1e-5  # of differences between a file and its model
FARTHEST = 1e3  # standard deviations; much further out torch's own probabilities lose digits

CODES = {
    "number": "the number; 1 for true, 0 for false; NaN if missing",
    "date": "days since 1970-01-01 in UTC, with fractions; of a duration, days; of a time of day, "
    "its share of the day; NaN if missing",
    "category": "the position in levels, from 0, of the value as text; -1 if it is not there; NaN "
    "if missing; whole numbers have no decimal point as text",
    "ignored": "has no code",
}

Array = NDArray[np.float64]


class Exported(NamedTuple):
    """A file that was written, and how far it was from its model when checked."""

    path: Path
    differences: dict[str, float]  # the largest of each output, measured as `export_onnx` says


def export_onnx(estimator: LastLayerEstimator, path: str | Path, *, level: float = 0.9) -> Exported:
    """Write a trained estimator as an ONNX file, checked against the estimator.

    onnxruntime runs the file on rows made up for the model: ordinary ones, some with missing
    values, with new levels, or with numbers a thousand standard deviations away; many at once and
    single ones. Differences are measured such that units do not matter: those of mean, lower and
    upper end in standard deviations of the prediction, but no finer than float64 has digits; those
    of the variance relative to it; those of probabilities as they are; those of the OOD score,
    which is in nats, relative to it where it exceeds one. Whatever happens, there is a checked file
    afterwards, or what was there before.

    Args:
        estimator: trained.
        path: of the file, which is replaced if there is one.
        level: probability of the central interval, for regression.

    Returns:
        Where the file is, and the largest difference of each output.

    Raises:
        RuntimeError: if an output differs by more than 1e-5; the file is not written then.
    """
    if not isinstance(estimator, LastLayerEstimator):
        raise TypeError(
            "export_onnx takes a LastLayerRegressor or a LastLayerClassifier, got "
            f"{type(estimator).__name__}; of a pipeline or a search, pass the estimator inside"
        )
    check_is_fitted(estimator)
    graph, path = _Graph(estimator, level), Path(path)
    with replacing(path) as partial:
        file = _translate(graph, _typical(estimator, np.random.default_rng(0), 3))
        onnx.helper.set_model_props(file, _metadata(estimator, level))
        partial.write_bytes(file.SerializeToString())
        onnx.checker.check_model(str(partial), full_check=True)
        differences = _compare(partial, estimator, level)
        if max(differences.values()) > TOLERANCE:
            found = ", ".join(f"{name} {value:.3g}" for name, value in differences.items())
            raise RuntimeError(
                f"the ONNX file predicts otherwise than its model: it differs by {found}, where "
                f"{TOLERANCE:g} is allowed; {path} was not written"
            )
    return Exported(path, differences)


# ------------------------------------------------------------------------------- the graph


class _Graph(nn.Module):
    """What a file computes: the model, with what depends on no row computed beforehand."""

    location: Tensor  # of the density, (width,)
    whitening: Tensor  # of the density, (width, width)
    reach: Tensor  # of intervals, in standard deviations, (K,)

    def __init__(self, estimator: LastLayerEstimator, level: float) -> None:
        super().__init__()
        model = copy.deepcopy(estimator.model_).cpu().double().eval().requires_grad_(False)
        self.encoding, self.network = model.encoding, model.network
        self.scaling, self.units = model.scaling, model.units
        # the score is ½‖A(x − μ)‖²; ONNX does not solve for A(x − μ)
        scale = model.density.scale
        center, factor = (part[0] for part in model.density.gaussian.gaussians())
        whitening = torch.linalg.solve_triangular(factor, scale.reciprocal().diag(), upper=False)
        self.register_buffer("location", center * scale)
        self.register_buffer("whitening", whitening)
        self.single = False
        self.outputs = ["probabilities", "ood_score"]
        if isinstance(estimator, LastLayerRegressor):
            self.single = estimator.target_shape_ == ()
            self.outputs = ["mean", "variance", "lower", "upper", "ood_score"]
            # all components have the same mean, and variances in the same proportions in every
            # row: the ends are always as many standard deviations away
            zero, one = torch.zeros_like(model.units.scale), torch.ones_like(model.units.scale)
            mixture = model.scaling(GaussianPredictive(zero, zero, one))
            self.register_buffer("reach", mixture.interval(level)[1] / mixture.stddev)

    def forward(self, codes: Tensor) -> tuple[Tensor, ...]:
        inputs = self.encoding(codes)
        error = described(self.network, inputs) - self.location
        score = 0.5 * (error @ self.whitening.mT).square().sum(-1)
        score = score + NEVER_SEEN * self.encoding.new_gaps(codes)
        predictive = self.units(self.scaling(self.network(inputs)))
        if self.outputs[0] == "probabilities":
            return predictive.probs(), score
        mean, variance = predictive.mean, predictive.variance
        width = self.reach * variance.sqrt()
        values = [mean, variance, mean - width, mean + width]
        return (*(value.squeeze(-1) if self.single else value for value in values), score)


def _translate(graph: _Graph, codes: Array) -> onnx.ModelProto:
    """The graph as ONNX, for any number of rows."""
    rows = torch.export.Dim("num_rows")
    with torch.no_grad(), _quiet():
        program = torch.export.export(
            graph, (torch.from_numpy(codes),), dynamic_shapes=({0: rows},), strict=False
        )
        written: Any = torch.onnx.export(
            program,
            dynamo=True,
            input_names=["codes"],
            opset_version=OPSET,
            custom_translation_table=translations(),
            verbose=False,
        )
    inner = written.model.graph
    values = [value for node in inner for value in node.outputs]
    for value in values:
        value.name = f"_{value.name}"  # torch may call one as an output is called
    for value, name in zip(inner.outputs, graph.outputs, strict=True):
        value.name = name
    for part in (inner, *inner, *values, *inner.inputs, *inner.initializers.values()):
        part.metadata_props.clear()  # where in which file of this machine it came from
    file: onnx.ModelProto = written.model_proto
    file.functions.extend([erfc(), ndtri()])
    file = onnx.inliner.inline_local_functions(file)
    opsets = [opset for opset in file.opset_import if opset.domain != DOMAIN]
    del file.opset_import[:], file.graph.value_info[:]
    file.opset_import.extend(opsets)
    for end in (*file.graph.input, *file.graph.output):
        end.type.tensor_type.shape.dim[0].dim_param = "num_rows"
    return file


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says about itself whenever it exports."""

    def wanted(record: logging.LogRecord) -> bool:
        return "torchvision is not installed" not in record.getMessage()

    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    logger.addFilter(wanted)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            # torch copies trees of its own by way of a class that it deprecated
            warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)", FutureWarning)
            yield
    finally:
        logger.removeFilter(wanted)


# -------------------------------------------------------------------------------- the file


def _metadata(estimator: Any, level: float) -> dict[str, str]:
    """What a reader needs beside the graph, as JSON."""
    threshold = estimator.ood_threshold_
    metadata = {
        "format": FORMAT,
        "lastlayer": __version__,
        "columns": estimator.columns_.to_json(),
        "codes": CODES,
        "ood_threshold": threshold if math.isfinite(threshold) else None,
    }
    if isinstance(estimator, LastLayerRegressor):
        shape = list(estimator.target_shape_)
        metadata |= {"kind": "regression", "target_shape": shape, "interval_level": level}
    else:
        metadata |= {"kind": "classification", "classes": estimator.classes_.tolist()}
    return {name: json.dumps(value, allow_nan=False) for name, value in metadata.items()}


# ------------------------------------------------------------------------------- the check


def _compare(file: Path, estimator: LastLayerEstimator, level: float) -> dict[str, float]:
    """The largest difference of each output between a file and its model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    largest = dict.fromkeys(names, 0.0)
    codes = _trials(estimator)
    for part in (codes, codes[:1], codes[-1:]):
        found, expected = session.run(names, {"codes": part}), _expected(estimator, part, level)
        for name, actual, (value, unit) in zip(names, found, expected, strict=True):
            largest[name] = max(largest[name], _difference(actual, value, unit))
    return largest


def _difference(actual: Array, expected: Array, unit: Array) -> float:
    """The largest; infinite if shapes differ, or only one of two values is a number."""
    if actual.shape != expected.shape:
        return math.inf
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    with np.errstate(invalid="ignore"):  # infinity less itself
        error = np.where(same, 0.0, np.abs(actual - expected) / unit)
    return float(np.where(np.isnan(error), math.inf, error).max())


@torch.no_grad()
def _expected(
    estimator: LastLayerEstimator, codes: Array, level: float
) -> list[tuple[Array, Array]]:
    """The model's own values of each output, and the units of differences."""
    model = estimator.model_
    inputs = torch.from_numpy(codes).to(model.units.scale.device)
    predictive, score = model(inputs), model.ood_score(inputs)
    if isinstance(estimator, LastLayerRegressor):
        shape = (len(codes), *estimator.target_shape_)
        variance, stddev = predictive.variance, predictive.stddev
        ends = [predictive.mean, *predictive.interval(level)]
        # 2⁻³² of a value times the tolerance is about ten of its roundings
        mean, *interval = [(end, stddev.maximum(2**-32 * end.abs())) for end in ends]
        pairs = [mean, (variance, variance), *interval]
        pairs = [(value.reshape(shape), unit.reshape(shape)) for value, unit in pairs]
    else:
        probabilities = predictive.probs()
        pairs = [(probabilities, torch.ones_like(probabilities))]
    pairs.append((score, score.abs().clamp(min=1)))
    return [(value.cpu().numpy(), unit.cpu().numpy()) for value, unit in pairs]


def _trials(estimator: LastLayerEstimator) -> Array:
    """Codes of rows of all kinds, (num_rows, num_columns)."""
    random = np.random.default_rng(0)
    usual, gaps, new, far = (_typical(estimator, random, 250) for _ in range(4))
    categories = np.array(estimator.columns_.num_levels) > 0
    gaps[random.random(gaps.shape) < 0.3] = np.nan
    new[(random.random(new.shape) < 0.5) & categories] = -1
    middle, factor = np.median(usual, 0), FARTHEST ** random.random(far.shape)
    far = np.where(categories, far, middle + factor * (far - middle))
    missing = np.full_like(usual[:1], np.nan)
    return np.concatenate([usual, gaps, new, far, missing])


def _typical(estimator: LastLayerEstimator, random: np.random.Generator, count: int) -> Array:
    """Codes of rows that are as in training, column by column, (count, num_columns)."""
    encoding: Any = estimator.model_.encoding
    numbers = (encoding.level == -1).cpu()
    parts = (encoding.source, encoding.location, encoding.scale)
    source, location, scale = (part.cpu()[numbers].numpy() for part in parts)
    levels = np.array(estimator.columns_.num_levels)
    codes: Array = random.integers(0, np.maximum(levels, 1), (count, len(levels))).astype(float)
    codes[:, source] = location + scale * random.standard_normal((count, len(source)))
    return codes
