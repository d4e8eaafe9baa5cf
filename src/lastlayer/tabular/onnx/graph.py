"""What an ONNX file computes: a torch module, and its translation."""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..density import describe
from ..estimators._base import LastLayerEstimator
from ..model import NEWLY_MISSING, TableModel
from .functions import DOMAIN, OPSET, erfc, ndtri, translations

Array = NDArray[np.float64]

SAME_SHAPE = 1e-9  # standard deviations between ends of intervals of different rows


class Graph(nn.Module):
    """The model of an estimator, with everything that depends on no row computed beforehand.

    Args:
        estimator: trained.
        level: probability of the central interval, for regression.
        codes: of some rows, (num_rows, num_columns).
    """

    location: Tensor  # of the density, (width,)
    whitening: Tensor  # of the density, (width, width)
    below: Tensor | None  # the lower end of intervals, in standard deviations from the mean, (K,)
    above: Tensor | None  # the upper end, likewise, (K,); None if it differs between rows

    def __init__(self, estimator: LastLayerEstimator, level: float, codes: Array) -> None:
        super().__init__()
        model = copy.deepcopy(estimator.model_).cpu().double().eval().requires_grad_(False)
        self.model, self.encoding, self.network = model, model.encoding, model.network
        # the score is ½‖A(x − μ)‖²; ONNX does not solve for A(x − μ)
        scale = model.density.scale
        center, factor = (part[0] for part in model.density.gaussian.gaussians())
        whitening = torch.linalg.solve_triangular(factor, scale.reciprocal().diag(), upper=False)
        self.register_buffer("location", center * scale)
        self.register_buffer("whitening", whitening)
        self.single = getattr(estimator, "target_shape_", None) == ()
        if estimator.task == "classification":
            self.outputs = ["probabilities", "ood_score"]
            return
        self.outputs = ["mean", "variance", "lower", "upper", "ood_score"]
        self.level = level
        below, above = _ends(model, level, torch.from_numpy(codes))
        self.register_buffer("below", below)
        self.register_buffer("above", above)

    def forward(self, codes: Tensor) -> tuple[Tensor, ...]:
        """The values of `outputs`, from codes, (num_rows, num_columns)."""
        inputs = self.encoding(codes)
        error = describe(self.encoding, self.network, inputs) - self.location
        score = 0.5 * (error @ self.whitening.mT).square().sum(-1)
        score = score + NEWLY_MISSING * self.encoding.num_newly_missing(codes)
        predictive = self.model(codes)
        if self.outputs[0] == "probabilities":
            return predictive.probs(), score
        mean, variance = predictive.mean, predictive.variance
        if self.below is None or self.above is None:
            lower, upper = predictive.interval(self.level)
        else:
            stddev = variance.sqrt()
            lower, upper = mean + self.below * stddev, mean + self.above * stddev
        values = [mean, variance, lower, upper]
        return (*(value.squeeze(-1) if self.single else value for value in values), score)


@torch.no_grad()
def _ends(model: TableModel, level: float, codes: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The ends of intervals in standard deviations from the mean, (K,) each, or None.

    Quantiles of a mixture are found by iteration, which ONNX has no short form for. But where all
    rows have a distribution of one shape, the ends are equally many standard deviations away;
    otherwise the graph has the iteration.
    """
    predictive = model.scaling(model.network(model.encoding(codes)))
    mean, stddev = predictive.mean, predictive.stddev
    lower, upper = ((end - mean) / stddev for end in predictive.interval(level))
    if max((ends - ends[0]).abs().max() for ends in (lower, upper)) > SAME_SHAPE:
        return None, None
    return lower.median(0).values, upper.median(0).values


def translate(graph: Graph, codes: Array) -> onnx.ModelProto:
    """The graph as ONNX, for any number of rows."""
    rows = torch.export.Dim("num_rows")
    with torch.no_grad(), _quiet():
        try:
            program = torch.export.export(
                graph, (torch.from_numpy(codes),), dynamic_shapes=({0: rows},), strict=False
            )
            _remove_unused(program.graph)
            written: Any = torch.onnx.export(
                program,
                dynamo=True,
                input_names=["codes"],
                opset_version=OPSET,
                custom_translation_table=translations(),
                verbose=False,
            )
        except Exception as error:  # of many types, for operations that have no translation
            raise TypeError(
                f"{type(graph.network.head).__name__} cannot be exported, because an operation of "
                f"its predictive has no form in ONNX; predict with Python ({type(error).__name__})"
            ) from error
    inner = written.model.graph
    values = [value for node in inner for value in node.outputs]
    for value in values:
        value.name = f"_{value.name}"  # torch may give one the name of an output
    for value, name in zip(inner.outputs, graph.outputs, strict=True):
        value.name = name
    for part in (inner, *inner, *values, *inner.inputs, *inner.initializers.values()):
        part.metadata_props.clear()  # paths of source files
    file: onnx.ModelProto = written.model_proto
    file.functions.extend([erfc(), ndtri()])
    file = onnx.inliner.inline_local_functions(file)
    opsets = [opset for opset in file.opset_import if opset.domain != DOMAIN]
    del file.opset_import[:], file.graph.value_info[:]
    file.opset_import.extend(opsets)
    for end in (*file.graph.input, *file.graph.output):
        end.type.tensor_type.shape.dim[0].dim_param = "num_rows"
    return file


def _remove_unused(graph: torch.fx.Graph) -> None:
    """Remove what no output depends on; assertions of dtypes, which keep it alive, too."""
    for node in reversed(graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            graph.erase_node(node)
    graph.eliminate_dead_code()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence messages of torch that concern no user."""

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
