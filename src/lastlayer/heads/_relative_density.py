"""The density of features that a generative head has beside that of its labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..functional.conjugate import ClassStatistics
from ..functional.shared_gaussians import SharedGaussians, on_sphere


class RelativeDensity(nn.Module):
    r"""log p(φ) under Gaussian classes, less that under a class yet unknown.

    Of features of length one, with one covariance, all of whose hyperparameters the evidence has
    chosen: what `lastlayer.ood.FeatureDensity` is by default, with the opposite sign. Its state is
    in double precision, and stays so when the module is cast.

    Args:
        state: the fields of `SharedGaussians`, and `power`, of features before they are scaled.
    """

    power: Tensor

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name in (*SharedGaussians._fields, "power"):
            self.register_buffer(name, state[name].detach().clone())

    @classmethod
    def of(cls, data: ClassStatistics, power: float) -> RelativeDensity | None:
        """From statistics of features on the sphere; None with fewer than two classes."""
        mean = data.total / data.counts.where(data.counts > 0, 1.0)[:, None]
        if int((data.counts > 0).sum()) < 2:
            return None
        found: dict[str, Any] = SharedGaussians.of(data.counts, mean, data.within)._asdict()
        return cls(found | {"power": data.counts.new_tensor(power)})

    def forward(self, features: Tensor) -> Tensor:
        """log Σ_y p(φ | y) p(y) − log p₀(φ) of features (*batch, N), (*batch,)."""
        gaussians = SharedGaussians(*(getattr(self, name) for name in SharedGaussians._fields))
        points = on_sphere(features.to(self.power.dtype), self.power)
        return gaussians.log_density(points) - gaussians.log_prior(points)

    def _apply(self, fn: Any, recurse: bool = True) -> RelativeDensity:
        """Move the density; it stays in its precision."""
        before = dict(self.named_buffers())
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in list(self.named_buffers()):
            if buffer.dtype != before[name].dtype:
                setattr(self, name, before[name].to(buffer.device))
        return self
