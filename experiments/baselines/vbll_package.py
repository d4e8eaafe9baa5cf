"""VBLL by the paper authors' own package, `vbll`: its last layer, in this training."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import lastlayer as ll

from ..backbones import mlp
from ..datasets.uci import Split
from ..method import AnyMethod
from .vbll import LastLayer


@dataclass(frozen=True, kw_only=True)
class VBLLPackage(LastLayer):
    """VBLL with the last layer of the authors' package, which starts by its own rules.

    Weight decay is for the last layer too, as AdamW would have it by default.
    """

    label = "VBLL by the authors' package"
    fewer_seeds: ClassVar[Mapping[str, int]] = {"power": 5}  # which takes 16 minutes for each
    relative_cost = 5.0

    initialize: bool = False

    @classmethod
    def for_dataset(cls: type[AnyMethod], dataset: str, **changes: Any) -> AnyMethod:
        """The same as VBLL's, if the package is there."""
        if importlib.util.find_spec("vbll") is None:
            raise ImportError(
                "vbll-package needs the vbll package: pip install -e '.[authors]'; or choose "
                "other methods"
            )
        return super().for_dataset(dataset, **changes)

    def seeds_together(self, dataset: str) -> int:
        """Few of the largest data set, where batching saves nothing, so that two cores share."""
        return 3 if dataset == "power" else 20

    def make(self, split: Split) -> nn.Module:
        """The network with the package's head."""
        return PackageNetwork(mlp.features(split.num_inputs), self, split.num_data)


class PackageNetwork(nn.Module):
    """The two calls of this package with a head of the other.

    Args:
        backbone: from inputs to features, (*batch, WIDTH).
        knobs: the prior.
        num_data: of the training data.
    """

    def __init__(self, backbone: nn.Module, knobs: LastLayer, num_data: int) -> None:
        super().__init__()
        import vbll

        self.backbone, self.num_data = backbone, num_data
        self.head = vbll.Regression(
            mlp.WIDTH,
            1,
            1 / num_data,
            prior_scale=knobs.prior_variance * mlp.WIDTH,  # which it divides by the width
            wishart_scale=knobs.noise_scale,
            dof=knobs.noise_dof,
        )

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Tensor | ll.Predictive:
        """The predictive, or with a target the loss."""
        self.head.regularization_weight = 1 / self.num_data
        with _unchecked():
            found = self.head(self.backbone(inputs))
            if target is not None:
                return found.train_loss_fn(target)
        mean, variance = found.predictive.mean, found.predictive.variance
        return ll.GaussianPredictive(mean, torch.zeros_like(mean), variance)


@contextlib.contextmanager
def _unchecked() -> Iterator[None]:
    """Distributions do not look at the values of their arguments, which batched seeds lack."""
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(__debug__)  # torch's default
