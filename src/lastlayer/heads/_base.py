"""What the three heads share: two calls and one objective."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from .._checks import (
    check_count,
    check_device,
    check_features,
    check_not_empty,
    check_positive,
)
from ..covariances import CovarianceLike, make_covariance
from ..functional import at_least_float32, gaussian_kl, squared_sum
from ..predictive import JointPredictive, Predictive
from ..priors import Prior


class Elbo(NamedTuple):
    """The parts of the objective; T · bound − kl bounds the log marginal likelihood.

    So does T · bound − kl − feature_kl where features are variational.
    """

    bound: Tensor  # mean over examples, ()
    kl: Tensor  # divergence of the last layer from its prior, unweighted, ()
    log_prior: Tensor  # unnormalised log-density of the noise, ()
    feature_kl: Tensor | None = None  # that of the features, unweighted, if there is one, ()


class Head(nn.Module, ABC):
    r"""A Bayesian last layer.

    `head(features)` returns the predictive; `head(features, target)` the scalar training loss
    $-\mathrm{ELBO}/T = -\mathrm{mean}\,\mathcal L + (\lambda\,KL - \log p(\Sigma))/T$.
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        *,
        num_data: float,
        covariance: CovarianceLike,
        prior: Prior | None,
        bias: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        check_count("num_features", num_features)
        self.num_features, self.num_outputs, self.bias = num_features, num_outputs, bias
        self.num_data = num_data
        self.prior = Prior() if prior is None else prior
        if not isinstance(self.prior, Prior):
            raise TypeError(f"prior must be a lastlayer.Prior, got {type(prior).__name__}")
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.mean = nn.Parameter(torch.empty(num_outputs, self.width, **factory))
        self.covariance = make_covariance(covariance, num_outputs, self.width, **factory)

    @property
    def num_data(self) -> float:
        """T, the number of training examples that the objective stands for."""
        return self._num_data

    @num_data.setter
    def num_data(self, value: float) -> None:
        check_positive("num_data", value)
        self._num_data = value

    @property
    def width(self) -> int:
        """Features that have a weight: `num_features`, and one more for a bias."""
        return self.num_features + int(self.bias)

    @property
    def num_densities(self) -> int:
        """How many Gaussians `FeatureDensity` takes the features for: one per class."""
        return self.num_outputs

    @property
    def density_prior(self) -> Prior | None:
        """The prior of the densities of features, if the head has one."""
        return None

    def reset_parameters(self) -> None:
        """Start anew: weights as in a linear layer, logits and errors of order one at any width.

        With features of order one, W̄φ and φᵀS_kφ are of order one too, and S_k starts no wider
        than its prior.
        """
        nn.init.normal_(self.mean, std=self.width**-0.5)
        self._start(1 / self.width)

    def _start(self, variance: float) -> None:
        """Start S_k at variance · I, or at its prior if that is narrower."""
        self.covariance.set_isotropic(min(self.prior.variance, variance))
        self._start_sums = self._sums()

    @property
    def fresh(self) -> bool:
        """Whether mean and S_k are where they started: neither trained, fitted nor loaded."""
        now, start = self._sums(), self._start_sums
        if now is None or start is None:
            return False
        rounding = 4 * torch.finfo(at_least_float32(self.mean[:0]).dtype).eps
        pairs = zip(now, start, strict=True)
        return all(abs(value - first) <= rounding * size for (value, size), (first, _) in pairs)

    @torch.no_grad()
    def _sums(self) -> list[tuple[float, float]] | None:
        """Sums of the values and sizes of mean and S_k, by which a change of them shows.

        None where there are no values: on the meta device, and of fake tensors.
        """
        parameters = [self.mean, *self.covariance.parameters()]
        if any(parameter.is_meta or isinstance(parameter, FakeTensor) for parameter in parameters):
            return None
        wide = [at_least_float32(parameter) for parameter in parameters]
        return [(float(p.sum()), float(torch.linalg.vector_norm(p, 1))) for p in wide]

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move or cast the head; a fresh one stays fresh, whatever rounding does to its sums."""
        fresh = "_start_sums" in vars(self) and self.fresh
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if fresh:
            self._start_sums = self._sums()
        return self

    # ------------------------------------------------------------------------- two calls

    def forward(
        self, features: Tensor, target: Tensor | None = None, weight: Tensor | None = None
    ) -> Any:
        """Return the predictive, or with a target the training loss.

        Args:
            features: (*batch, num_features), of the head's dtype and device.
            target: (*batch, K) for regression (or (*batch,) if K = 1), class indices (*batch,)
                for classification.
            weight: weights of the examples, (*batch,), and for regression of their outputs,
                (*batch, K). A target with weight zero is ignored, even if it is NaN.

        Returns:
            A predictive, or a scalar: the negative ELBO divided by `num_data`.
        """
        if target is None:
            if weight is not None:
                raise ValueError("weight is for the loss; pass a target with it, or no weight")
            return self.predict(self._inputs(features))
        return self.loss(self.elbo(features, target, weight))

    def loss(self, elbo: Elbo) -> Tensor:
        """What training minimises, from its parts, ()."""
        loss = torch.sub(torch.neg(elbo.bound), elbo.log_prior, alpha=1 / self.num_data)
        return torch.add(loss, elbo.kl, alpha=self.prior.kl_weight / self.num_data)

    def elbo(self, features: Tensor, target: Tensor, weight: Tensor | None = None) -> Elbo:
        """The parts of the objective, for logging; arguments as in `forward`."""
        check_not_empty(features)
        inputs = self._inputs(features)
        check_device("target", target, features.device)
        terms, kl, log_prior = self.objective(inputs, target, weight)
        per_example = terms.numel() * self.num_features // features.numel()
        bound = terms.mean() if per_example == 1 else terms.mean() * per_example
        return Elbo(bound, kl, log_prior)

    @abstractmethod
    def predict(self, features: Tensor) -> Predictive:
        """The predictive of prepared features."""

    def joint(self, features: Tensor) -> JointPredictive:
        """One Gaussian over several points together.

        Args:
            features: (*batch, q, num_features), q points each.

        Returns:
            A joint predictive of batch shape (*batch,) over q points and K outputs.
        """
        raise TypeError(
            f"{type(self).__name__} has no Gaussian outputs of which several points could have a "
            "joint one; draw functions with sample_function, or use a regression or "
            "discriminative head"
        )

    def _joint_moments(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Means of several points, (*batch, q, K), and factors of S_k, (*batch, K, q, M)."""
        inputs = self._inputs(features)
        if features.ndim < 2:
            raise ValueError(
                f"joint needs the features of several points, (*batch, q, {self.num_features}), "
                f"got shape {tuple(features.shape)}; pass features.unsqueeze(0) for one point"
            )
        mean = at_least_float32(F.linear(inputs, self.mean))
        return mean, self.covariance.root_products(inputs).movedim(-2, -3)

    @abstractmethod
    def objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Terms that sum to each example's bound, (*batch,) or (*batch, K), KL and log p(Σ)."""

    def _inputs(self, features: Tensor) -> Tensor:
        """Check features and append the constant one if there is a bias, (*batch, width)."""
        check_features(features, self.num_features, self.mean)
        return F.pad(features, (0, 1), value=1.0) if self.bias else features

    def _divergence(self, mean: Tensor, trace: Tensor, logdet: Tensor) -> Tensor:
        """Divergence of q from its prior, from sums over outputs, ()."""
        weights = self.num_outputs * self.width
        return gaussian_kl(squared_sum(mean), trace, logdet, weights, self.prior.variance)

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        return (
            f"num_features={self.num_features}, num_outputs={self.num_outputs}, "
            f"num_data={self.num_data}, bias={self.bias}, prior={self.prior}"
        )


def as_linear(weight: Tensor, head: Head) -> nn.Linear:
    """A linear layer with given weights, (K, width), whose last column is the bias if any."""
    layer = nn.utils.skip_init(
        nn.Linear,
        head.num_features,
        head.num_outputs,
        bias=head.bias,
        device=weight.device,
        dtype=head.mean.dtype,
    )
    with torch.no_grad():
        layer.weight.copy_(weight[:, : head.num_features])
        if head.bias:
            layer.bias.copy_(weight[:, -1])
    return layer.requires_grad_(False)
