"""Draws of functions for BoTorch: Thompson sampling by whole functions, not by values at points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from botorch.sampling.pathwise.utils import get_output_transform
from torch import Size, Tensor

from .model import LastLayerModel


class LastLayerPath(SamplePath):
    """Functions Wφ(x) of drawn weights W.

    Args:
        features: from inputs (…, n, d) to features (…, n, N), the constant one of a bias included.
        weight: of each function, (*sample_shape, *batch, N), or (*sample_shape, *batch, m, N).
        output_transform: of the values.
    """

    def __init__(
        self, features: Callable[[Tensor], Tensor], weight: Tensor, output_transform: Any
    ) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("weight", weight)
        self.output_transform = output_transform

    def forward(self, inputs: Tensor) -> Tensor:
        """Values at inputs (…, n, d), (*sample_shape, …, n); a dimension of m comes before n."""
        weight: Any = self.weight
        return (self.features(inputs) @ weight.unsqueeze(-1)).squeeze(-1)

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Nothing: draws have no dimension of an ensemble."""


@DrawMatheronPaths.register(LastLayerModel)  # type: ignore[untyped-decorator]
def draw_paths(model: Any, *, sample_shape: Size, **options: Any) -> LastLayerPath:
    """Functions drawn from the posterior of a model, exactly: no prior draw needs an update."""
    weight = model.sample_weights(sample_shape)
    if model.num_outputs == 1:
        weight = weight.squeeze(-2)
    return LastLayerPath(model.weighted_features, weight, get_output_transform(model))
