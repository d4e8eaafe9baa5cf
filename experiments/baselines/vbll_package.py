"""VBLL by the paper authors' own package, `vbll`: its last layer, in this training."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import lastlayer as ll

from ..harness.task import Supervised
from .fitted import Fitted
from .vbll import LastLayer


@dataclass(frozen=True, kw_only=True)
class VBLLPackage(LastLayer):
    """VBLL with the last layer of the paper authors' own package, for regression.

    Initial values follow the package's rules. Weight decay is for the last layer too, as AdamW
    would have it by default.
    """

    label = "VBLL by the authors' package"
    relative_cost = 5.0

    initialize: bool = False

    def __post_init__(self) -> None:
        _check_installed()

    def make(self, task: Supervised) -> nn.Module:
        """The network with the package's head."""
        return PackageNetwork(task.backbone(), task.num_features, self.prior, task.num_data)


@dataclass(frozen=True, kw_only=True)
class DiscriminativePackage(Fitted):
    """D-VBLL with the discriminative last layer of the paper authors' own package.

    All its options are the package's defaults, the prior and its scaling by the width included.
    Initial values and weight decay are as in `VBLLPackage`.
    """

    label = "`vbll`"
    relative_cost = 5.0

    initialize: bool = False
    prior_scale: float = 1.0  # the package multiplies it by 2 / width

    def __post_init__(self) -> None:
        _check_installed()

    def make(self, task: Supervised) -> nn.Module:
        """The network with the package's head."""
        import vbll

        num_data, num_classes = task.num_data, task.likelihood.num_targets
        head = vbll.DiscClassification(
            task.num_features, num_classes, 1 / num_data, prior_scale=self.prior_scale
        )
        return PackageClassifier(task.backbone(), head)


class PackageClassifier(nn.Module):
    """The two calls of this package with a classification head of the other.

    Args:
        backbone: from inputs to features, (*batch, num_features).
        head: of the other package.
    """

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, inputs: Tensor, target: Tensor | None = None) -> Tensor | ll.Predictive:
        """The predictive, a mean over twenty samples of the package; with a target the loss."""
        with _unchecked():
            found = self.head(self.backbone(inputs))
            if target is not None:
                return found.train_loss_fn(target)
        return ll.SoftmaxPredictive(found.predictive.probs.log())


def _check_installed() -> None:
    if importlib.util.find_spec("vbll") is None:
        raise ImportError(
            "this method needs the vbll package: pip install -e '.[authors]'; or choose other "
            "methods"
        )


class PackageNetwork(nn.Module):
    """The two calls of this package with a head of the other.

    Args:
        backbone: from inputs to features, (*batch, num_features).
        num_features: N.
        prior: of weights and noise.
        num_data: T, of the training data.
    """

    def __init__(
        self, backbone: nn.Module, num_features: int, prior: ll.Prior, num_data: int
    ) -> None:
        super().__init__()
        import vbll

        self.backbone, self.num_data = backbone, num_data
        self.head = vbll.Regression(
            num_features,
            1,
            1 / num_data,
            prior_scale=prior.fixed_variance * num_features,  # which it divides by the width
            wishart_scale=prior.noise_scale,
            dof=prior.noise_dof,
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
