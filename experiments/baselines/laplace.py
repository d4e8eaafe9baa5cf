"""Last-layer Laplace by the `laplace-torch` package, an opponent of variational last layers."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lastlayer as ll
from lastlayer.posttraining import cache_features

from ..harness.task import Supervised
from .deterministic import Deterministic
from .plain import PlainNetwork


@dataclass(frozen=True, kw_only=True)
class LastLayerLaplace(Deterministic):
    """A network trained as usual, then the package's Gaussian about its last layer.

    The prior precision is tuned by the package's marginal likelihood; predictions are its own
    (the probit approximation).
    """

    label = "last-layer Laplace"
    trained_as = Deterministic

    structure: str = "full"  # of the Hessian: "full", "kron" or "diag"

    def __post_init__(self) -> None:
        if importlib.util.find_spec("laplace") is None:
            raise ImportError(
                "last-layer Laplace needs laplace-torch: pip install -e '.[laplace]'; or choose "
                "other methods"
            )

    def finish(self, model: nn.Module, task: Supervised) -> nn.Module:
        """The posterior of the last layer, given the training data."""
        assert isinstance(model, PlainNetwork)
        from laplace import Laplace
        from laplace.curvature import BackPackGGN

        assert isinstance(model.network, nn.Sequential)
        # on features alone: the layers below are fixed, and their cost is that of one pass
        backbone, layer = model.network.eval()
        cached = cache_features(backbone, task.train, progress=False)
        posterior = Laplace(
            nn.Sequential(nn.Identity(), layer),
            "classification",
            subset_of_weights="last_layer",
            hessian_structure=self.structure,
            last_layer_name="1",
            backend=BackPackGGN,
        )
        rows = TensorDataset(cached.features, cached.target)
        posterior.fit(DataLoader(rows, batch_size=1024))
        posterior.optimize_prior_precision(method="marglik")
        return LaplaceNetwork(backbone, posterior)


class LaplaceNetwork(nn.Module):
    """Predictives of a Laplace approximation.

    Args:
        backbone: from inputs to features.
        posterior: of `laplace-torch`, on features.
    """

    def __init__(self, backbone: nn.Module, posterior: nn.Module) -> None:
        super().__init__()
        self.backbone, self.posterior = backbone, [posterior]  # its own modes are its business

    def forward(self, inputs: Tensor) -> ll.SoftmaxPredictive:
        """Class probabilities."""
        probs = self.posterior[0](self.backbone(inputs), link_approx="probit")
        tiny = torch.finfo(probs.dtype).tiny
        return ll.SoftmaxPredictive(probs.detach().clamp_min(tiny).log())
