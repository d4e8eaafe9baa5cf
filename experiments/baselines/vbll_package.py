"""VBLL by the paper authors' own package, `vbll`, under the same protocol: an independent check."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

import lastlayer as ll

from ..backbones import mlp
from ..datasets.uci import Split
from .vbll import VBLL


@dataclass(frozen=True, kw_only=True)
class VBLLPackage(VBLL):
    """The last layer of the authors' package, started by its own rules.

    Weight decay is for the last layer too, as AdamW would have it by default.
    """

    label = "VBLL by the authors' package"
    num_seeds: ClassVar[int] = 5  # on the largest data set a seed takes a quarter of an hour
    relative_cost = 5.0

    initialize: bool = False

    def seeds_together(self, dataset: str) -> int:
        """Few of the largest: a step takes as long as those of all its seeds."""
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

    def __init__(self, backbone: nn.Module, knobs: VBLL, num_data: int) -> None:
        super().__init__()
        try:
            import vbll
        except ImportError as error:
            raise ImportError(
                "this method is the vbll package's: pip install 'lastlayer[authors]' (in a "
                "checkout: pip install -e '.[authors]')"
            ) from error
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
