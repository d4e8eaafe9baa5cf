"""A head and a predictive of a user's own: Gaussian errors replaced by Laplace ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Laplace

from lastlayer import Regression
from lastlayer.calibration import VarianceScaling
from lastlayer.predictive import RegressionPredictive
from lastlayer.sklearn import LastLayerRegressor


@dataclass(frozen=True, eq=False)
class LaplacePredictive(RegressionPredictive):
    """Independent Laplace targets."""

    mean: Tensor
    epistemic_variance: Tensor
    noise_variance: Tensor

    def _laplace(self) -> Laplace:
        return Laplace(self.mean, (self.variance / 2).sqrt(), validate_args=False)

    def log_prob(self, target: Tensor) -> Tensor:
        return self._laplace().log_prob(self._target(target)).sum(-1)

    def cdf(self, value: Tensor) -> Tensor:
        return self._laplace().cdf(self._target(value))

    def affine(self, location: Tensor, scale: Tensor) -> LaplacePredictive:
        square = scale.square()
        return type(self)(
            location + scale * self.mean,
            square * self.epistemic_variance,
            square * self.noise_variance,
        )

    def sample(
        self, sample_shape: Sequence[int] | int = (), generator: torch.Generator | None = None
    ) -> Tensor:
        raise NotImplementedError

    def distribution(self) -> Distribution:
        return Independent(self._laplace(), 1)


class UnevenPredictive(LaplacePredictive):
    """Intervals whose shape differs between examples."""

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        return self.mean - self.stddev, self.mean + self.mean.sigmoid() * self.stddev


class LaplaceHead(Regression):
    """A regression head with another predictive."""

    predictive: type[LaplacePredictive] = LaplacePredictive

    def predict(self, features: Tensor) -> Any:
        gaussian = super().predict(features)
        return self.predictive(gaussian.mean, gaussian.epistemic_variance, gaussian.noise_variance)


class UnevenHead(LaplaceHead):
    """A head whose predictive has no form in ONNX."""

    predictive = UnevenPredictive


class LaplaceRegressor(LastLayerRegressor):
    """An estimator with the head of a user."""

    head_class: type[LaplaceHead] = LaplaceHead

    def _head(self, num_features: int, num_data: float) -> LaplaceHead:
        return self.head_class(
            num_features, self._num_targets, num_data=num_data, bias=True, dtype=torch.float32
        )

    def _scaling(self) -> Any:
        return VarianceScaling(self._num_targets)


class UnevenRegressor(LaplaceRegressor):
    """An estimator that cannot be exported."""

    head_class = UnevenHead
