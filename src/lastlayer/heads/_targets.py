"""What heads with real-valued targets share: initialisation in their units, errors, draws."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._checks import check_finite, check_not_empty, check_target, check_weight
from .._sharding import assignable
from ..functional import at_least_float32, conjugate
from ._base import Head
from ._linear import Cached, as_linear, prior_in_units

AnyRealTargets = TypeVar("AnyRealTargets", bound="RealTargets")


class RealTargets(Head):
    """A head for targets of any units.

    Attributes:
        conjugate: whether the covariance of the weights is in units of the noise.
        heavy_tails: whether errors may be far larger than their scale.
    """

    conjugate: bool = False
    heavy_tails: ClassVar[bool] = False

    @classmethod
    def from_linear(
        cls: type[AnyRealTargets],
        layer: nn.Linear,
        cached: Cached,
        *,
        num_data: float,
        **options: Any,
    ) -> AnyRealTargets:
        """A head to replace a trained linear layer, initialised at its weights.

        Without a `prior` it has one in the units of the targets: its variance is the mean square of
        the trained weights (in units of the noise if conjugate), the scale of its noise that of the
        residuals, and its mean is zero for the weights and the trained bias for the bias.
        """
        options = {"bias": layer.bias is not None, **options}
        given = "prior" in options
        if not given:
            conjugate = options.get("row_covariance") == "noise" or cls.conjugate
            options["prior"] = prior_in_units(
                layer, cached, conjugate=conjugate, heavy_tails=cls.heavy_tails
            )
        head = super().from_linear(layer, cached, num_data=num_data, **options)
        if not given and head.bias and layer.bias is not None:
            prior_mean = torch.zeros_like(head.mean)
            prior_mean[:, -1] = layer.bias.detach()
            head.prior_mean = prior_mean
        return head

    @torch.no_grad()
    def initialize(self, features: Tensor, target: Tensor) -> None:
        """Initialise at the scale of the data: predict next to nothing, call the target noise.

        The first loss is then that of a Gaussian fitted to the targets under the prior of the
        noise, whatever their units.
        """
        check_not_empty(features)
        inputs = self._inputs(features)
        check_finite("features", inputs)
        target = check_target(target, features.shape[:-1], self.num_outputs)
        check_finite("targets", target)
        if self.prior_mean is not None:
            target = target - F.linear(inputs, self.prior_mean)
        self.initialize_scale(target.double().reshape(-1, self.num_outputs).square().mean(0))

    @torch.no_grad()
    def prepare(
        self,
        data: Iterable[tuple[Tensor, Tensor | None]],
        *,
        new: bool,
        total: Callable[[Tensor], Tensor],
    ) -> None:
        """If new, initialise at the scale of the targets of the first batch; see `initialize`."""
        if not new:
            return
        target, weight = next(iter(data))
        target = target.double().reshape(-1, self.num_outputs)
        if self.bias and self.prior_mean is not None:
            target = target - self.prior_mean[:, -1].to(target)
        counted = torch.ones_like(target)
        if weight is not None:  # what counts nothing may be NaN
            counted = (weight != 0).double().reshape(len(target), -1).expand_as(target)
        sums = torch.stack([target.square().where(counted != 0, 0.0).sum(0), counted.sum(0)])
        sums = total(sums.to(self.mean.device))
        self.initialize_scale(sums[0] / sums[1].clamp(min=1))

    @torch.no_grad()
    def initialize_scale(self, mean_square: Tensor) -> None:
        """`initialize`, given the mean square of each output's targets about the prior, (K,)."""
        power = mean_square.double().clamp(min=1e-30)
        with assignable(self) as head:
            head._initialize_scale(power)
        self._note_initial()

    def _initialize_scale(self, power: Tensor) -> None:
        self.reset_parameters()
        given = self.prior.variance
        limit = float("inf") if self.conjugate or isinstance(given, str) else given**0.5
        scale = (0.1 * power.sqrt()).clamp(max=limit).unsqueeze(-1)
        self.mean.copy_(self._prior_mean() + scale * self._deviation())
        self._initialize_covariance((1.0 if self.conjugate else float(power.min())) / self.width)
        scatter, prior = (self.num_data * power).diag_embed(), self.prior
        noise = conjugate.inverse_wishart_mode(
            scatter, torch.full_like(power, self.num_data), prior.noise_dof, prior.noise_scale
        )
        self._assign_noise(noise.diagonal().to(self.mean.device))

    @abstractmethod
    def _assign_noise(self, variance: Tensor) -> None:
        """Set the noise to given variances, (K,)."""

    def _prior_mean(self) -> Tensor:
        if self.prior_mean is not None:
            return self.prior_mean
        mean = self.mean  # which may be sharded
        return torch.zeros(mean.shape, dtype=mean.dtype, device=mean.device)

    def _check_weight(self, weight: Tensor, batch_shape: torch.Size) -> Tensor:
        return check_weight(weight, batch_shape, self.num_outputs).to(self.mean.dtype)

    def _errors(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Checked errors y − W̄φ, (*batch, K), and weights that multiply terms of that shape."""
        target = check_target(target, features.shape[:-1], self.num_outputs).to(self.mean.dtype)
        if weight is not None:
            weight = self._check_weight(weight, features.shape[:-1])
            target = target.where(weight != 0, 0.0)
        return at_least_float32(target - F.linear(features, self.mean)), weight

    @abstractmethod
    def sample_weights(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws of W, (num_samples, K, N), with one more feature if there is a bias."""

    def sample_function(self, generator: torch.Generator | None = None) -> nn.Linear:
        """One draw of the weights, as a linear layer on the features: Thompson sampling."""
        return as_linear(self.sample_weights(1, generator).squeeze(0), self)
