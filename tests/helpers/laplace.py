"""Estimators with a head and a predictive of a user's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lastlayer import HeteroscedasticRegression, Regression
from lastlayer.calibration import VarianceScaling
from lastlayer.sklearn import LastLayerRegressor
from tests.helpers.toys import LaplacePredictive


class LaplaceHead(Regression):
    """A regression head with another predictive."""

    predictive: type[LaplacePredictive] = LaplacePredictive

    def predict(self, features: Tensor) -> Any:
        gaussian = super().predict(features)
        return self.predictive(gaussian.mean, gaussian.epistemic_variance, gaussian.noise_variance)


class LaplaceRegressor(LastLayerRegressor):
    """An estimator with the head of a user."""

    head_class: Any = LaplaceHead

    def _heads(self) -> dict[str, Any]:
        return {"own": self._head}

    def _head(self, num_features: int, num_data: float) -> Any:
        return self.head_class(
            num_features, self._num_targets, num_data=num_data, bias=True, dtype=torch.float32
        )

    def _scaling(self) -> Any:
        return VarianceScaling(self._num_targets)


class HeteroscedasticRegressor(LaplaceRegressor):
    """An estimator with noise that depends on the input."""

    head_class = HeteroscedasticRegression
