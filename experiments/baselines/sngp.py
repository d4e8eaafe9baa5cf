"""SNGP: bounded convolutions and a Gaussian process in random features (Liu et al., 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

import lastlayer as ll
from lastlayer.posttraining import cache_features

from ..harness.task import Supervised
from .fitted import Fitted
from .plain import PlainNetwork

FACTORS = (0.0, *(10.0**exponent for exponent in torch.linspace(-1, 4, 26).tolist()))


@dataclass(frozen=True, kw_only=True)
class SNGP(Fitted):
    """Spectrally bounded convolutions, and random features of a Gaussian process as last layer.

    The settings are those of the published code; its mean-field factor is chosen by the NLL of
    held-out data, if none is given.
    """

    label: ClassVar[str] = "SNGP"

    spectral_bound: float = 6.0
    num_inputs: int = 128  # of the Gaussian process: wider features are projected at random
    num_random_features: int = 1024
    length_scale: float = 2.0  # in root mean squares of the normalised features
    ridge: float = 1.0
    mean_field_factor: float | None = None
    logit_scale: float = 1.0

    def make(self, task: Supervised) -> PlainNetwork:
        """The network, with its convolutions bounded."""
        backbone = task.backbone()
        for module in list(backbone.modules()):
            if isinstance(module, nn.Conv2d) and module.weight.requires_grad:
                bound = SpectralBound(module, self.spectral_bound)
                parametrize.register_parametrization(module, "weight", bound)
        output = task.likelihood.output()
        layer = RandomFeatures(task.num_features, self)
        linear = nn.Linear(self.num_random_features, output.num_outputs)
        return PlainNetwork(nn.Sequential(backbone, layer, linear), output)

    def finish(self, model: nn.Module, task: Any) -> nn.Module:
        """The posterior of the last layer, after one pass over the training data."""
        assert isinstance(model, PlainNetwork)
        assert isinstance(model.network, nn.Sequential)
        backbone, layer, linear = model.network.eval()
        features = nn.Sequential(backbone, layer)
        data = cache_features(features, task.train, progress=False)
        rows = data.features.double() / self.logit_scale
        precision = self.ridge * torch.eye(rows.shape[-1], dtype=rows.dtype) + rows.T @ rows
        network = MeanField(features, linear, precision.inverse() * self.ridge, self.logit_scale)
        factor = self.mean_field_factor
        network.factor.fill_(network.best_factor(task.held_out) if factor is None else factor)
        return network

    def remarks(self, model: nn.Module) -> dict[str, Any]:
        """The factor that was chosen."""
        assert isinstance(model, MeanField)
        return {"mean_field_factor": model.factor.item()}


class SpectralBound(nn.Module):
    """Scales the weights of a convolution down if its norm, as a linear map, is above a bound.

    One power iteration per training step, on images of 8 × 8 pixels.

    Args:
        layer: the convolution.
        bound: on its norm.
    """

    SIDE = 8

    vector: Tensor

    def __init__(self, layer: nn.Conv2d, bound: float) -> None:
        super().__init__()
        self.bound, self.padding = bound, layer.kernel_size[0] // 2
        vector = torch.randn(1, layer.in_channels, self.SIDE, self.SIDE)
        self.register_buffer("vector", vector / vector.norm())

    def forward(self, weight: Tensor) -> Tensor:
        """The weights, perhaps smaller."""
        with torch.autocast(weight.device.type, enabled=False):
            if self.training:
                with torch.no_grad():
                    image = F.conv2d(self.vector, weight, padding=self.padding)
                    image = F.conv_transpose2d(image, weight, padding=self.padding)
                    self.vector.copy_(image / image.norm().clamp_min(1e-12))
            norm = F.conv2d(self.vector.clone(), weight, padding=self.padding).norm()
            return weight * (self.bound / norm.clamp_min(1e-12)).clamp(max=1.0)


class RandomFeatures(nn.Module):
    """Orthogonal random features of a Gaussian kernel, after a layer norm; all but that is fixed.

    Args:
        num_inputs: the width of the features below.
        method: with the settings.
    """

    weight: Tensor
    phase: Tensor
    projection: Tensor

    def __init__(self, num_inputs: int, method: SNGP) -> None:
        super().__init__()
        width = min(num_inputs, method.num_inputs)
        self.scale = method.logit_scale
        projection = torch.randn(num_inputs, width) / math.sqrt(width)
        projected = num_inputs > width
        self.register_buffer("projection", projection if projected else torch.empty(0))
        self.norm = nn.LayerNorm(width)
        blocks = []
        for _ in range(-(-method.num_random_features // width)):
            orthogonal = torch.linalg.qr(torch.randn(width, width))[0]
            lengths = torch.randn(width, width).norm(dim=0)  # as of Gaussian vectors
            blocks.append(orthogonal * lengths)
        weight = torch.cat(blocks, 1)[:, : method.num_random_features]
        self.register_buffer("weight", weight / (method.length_scale * math.sqrt(width)))
        self.register_buffer("phase", 2 * math.pi * torch.rand(method.num_random_features))

    def forward(self, features: Tensor) -> Tensor:
        """From (B, N) to cosines, times the scale of logits, (B, num_random_features)."""
        with torch.autocast(features.device.type, enabled=False):
            features = features.float()
            if self.projection.numel():
                features = features @ self.projection
            return self.scale * (self.norm(features) @ self.weight + self.phase).cos()


class MeanField(nn.Module):
    """Logits over √(1 + factor · variance): the mean-field approximation of the mean softmax.

    The score of an input is the uncertainty of Dempster and Shafer, K / (K + Σ_k exp z_k).

    Args:
        features: from inputs to random features, scaled.
        linear: the last layer.
        covariance: of the weights of the last layer, for features without the scale.
        scale: of the features.
    """

    covariance: Tensor
    factor: Tensor

    def __init__(self, features: nn.Module, linear: nn.Module, covariance: Tensor, scale: float):
        super().__init__()
        self.features, self.linear, self.scale = features, linear, scale
        self.register_buffer("covariance", covariance)
        self.register_buffer("factor", torch.zeros(()))

    def logits_and_variance(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Means, (B, K), and the variance that all classes share, (B, 1)."""
        features = self.features(inputs)
        rows = features.double() / self.scale
        variance = ((rows @ self.covariance) * rows).sum(-1, keepdim=True)
        return self.linear(features), variance.to(features.dtype)

    def forward(self, inputs: Tensor) -> ll.SoftmaxPredictive:
        """Class probabilities."""
        logits, variance = self.logits_and_variance(inputs)
        return ll.SoftmaxPredictive(logits / (1 + self.factor * variance).sqrt())

    def scored(self, inputs: Tensor) -> tuple[ll.SoftmaxPredictive, Tensor]:
        """Class probabilities and the score, (B,)."""
        predictive = self(inputs)
        logits = predictive.logits
        return predictive, -F.softplus(logits.logsumexp(-1) - math.log(logits.shape[-1]))

    @torch.no_grad()
    def best_factor(self, data: tuple[Tensor, Tensor]) -> float:
        """The factor with the lowest NLL."""
        parts = [self.logits_and_variance(inputs) for inputs in data[0].split(500)]
        logits, variance = (torch.cat(part) for part in zip(*parts, strict=True))

        def nll(factor: float) -> float:
            return float(F.cross_entropy(logits / (1 + factor * variance).sqrt(), data[1]))

        return min(FACTORS, key=nll)
