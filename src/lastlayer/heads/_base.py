"""What all heads share: two calls, one objective, and what they remember."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._checks import check_device, check_features, check_not_empty, check_positive
from ..covariances import CovarianceLike
from ..functional import at_least_float32
from ..predictive import JointPredictive, Predictive
from ..priors import Prior
from ._linear import Cached, weights_of
from ._parts import Elbo, Recorder, record, recorded
from ._weights import GaussianWeights

AnyHead = TypeVar("AnyHead", bound="Head")


class Head(GaussianWeights, ABC):
    r"""A Bayesian last layer.

    `head(features)` returns the predictive; `head(features, target)` the scalar training loss
    $-\mathrm{ELBO}/T = -\mathrm{mean}\,\mathcal L + (\lambda\,KL - \log p(\Sigma))/T$.

    A subclass defines `predict` and `objective`, and ends its constructor with
    `reset_parameters()`. Everything else has a default.

    Attributes:
        mean: W̄, the posterior mean of the weights, (K, width).
        covariance: the posterior covariances S_k.
        prior: of weights and noise.
        prior_mean: a buffer, the mean of the prior of W, (K, width), or None for zero.
        assumption: by what the last `fit_features` chose what it was not told, None for nothing.
    """

    assumption: str | None = None
    takes_validation: ClassVar[bool] = False  # whether `fit_features` chooses by validation data
    fits_parts: ClassVar[bool] = False  # whether `fit_features` merges what processes have seen
    takes_classes: ClassVar[bool] = False  # whether targets are class indices
    refits_layer: ClassVar[bool] = False  # whether parts of the training data choose its prior
    has_prior: ClassVar[bool] = True  # so that its parameters need no weight decay
    _recorder: ClassVar[Recorder | None] = None  # of the parts of the loss, if they are asked for

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        *,
        num_data: float,
        covariance: CovarianceLike = "diagonal",
        prior: Prior | None = None,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_features,
            num_outputs,
            covariance=covariance,
            prior=prior,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        self.num_data = num_data

    @property
    def num_data(self) -> float:
        """T, the number of training examples that the objective stands for."""
        return self._num_data

    @num_data.setter
    def num_data(self, value: float) -> None:
        check_positive("num_data", value)
        self._num_data = value

    # ------------------------------------------------------------------------- two calls

    def forward(
        self,
        features: Tensor,
        target: Tensor | None = None,
        weight: Tensor | None = None,
        output: Tensor | None = None,
    ) -> Any:
        """Return the predictive, or with a target the training loss.

        Args:
            features: (*batch, num_features), of the head's dtype and device.
            target: (*batch, K) for regression (or (*batch,) if K = 1), class indices (*batch,)
                for classification.
            weight: weights of the examples, (*batch,), and for regression of their outputs,
                (*batch, K). A target with weight zero is ignored, even if it is NaN.
            output: for regression with diagonal noise, the index of the one output of each
                example that was observed, (*batch,); target and weight are then (*batch,) too.

        Returns:
            A predictive, or a scalar: the negative ELBO divided by `num_data`.
        """
        if target is None:
            if weight is not None or output is not None:
                name = "output" if weight is None else "weight"
                raise ValueError(f"{name} is for the loss; pass a target with it, or no {name}")
            return self.predict(self._inputs(features))
        inputs = self._inputs(features)
        check_not_empty(features)
        check_device("target", target, features.device)
        if output is None:
            bounds, kl, log_prior = self.objective(inputs, target, weight)
        else:
            check_device("output", output, features.device)
            bounds, kl, log_prior = self.observed_objective(inputs, target, weight, output)
        if bounds.shape != features.shape[:-1]:
            raise ValueError(
                f"objective must return one bound per example, {tuple(features.shape[:-1])}, "
                f"got shape {tuple(bounds.shape)}; sum over outputs"
            )
        bound = bounds.mean()
        if self._recorder is not None:
            record(self, bound=bound, kl=kl, log_prior=log_prior)
        loss = torch.sub(torch.neg(bound), log_prior, alpha=1 / self.num_data)
        return torch.add(loss, kl, alpha=self.prior.kl_weight / self.num_data)

    def elbo(
        self,
        features: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        output: Tensor | None = None,
    ) -> Elbo:
        """The parts of the objective, for logging; arguments as in `forward`."""
        with recorded(self) as parts:
            self(features, target, weight, *(() if output is None else (output,)))
        return Elbo.of(parts)

    @abstractmethod
    def predict(self, features: Tensor) -> Predictive:
        """The predictive of prepared features, (*batch, width)."""

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
        """Each example's bound, (*batch,), weighted; KL and log p(Σ), () each."""

    def observed_objective(
        self, features: Tensor, target: Tensor, weight: Tensor | None, output: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`objective` where one output of each example is observed; see `forward`."""
        raise TypeError(
            f"{type(self).__name__} has no outputs of which one alone could be observed; use a "
            "regression head, or pass no output"
        )

    def _inputs(self, features: Tensor) -> Tensor:
        """Check features and append the constant one if there is a bias, (*batch, width)."""
        check_features(features, self.num_features, self.mean)
        return F.pad(features, (0, 1), value=1.0) if self.bias else features

    # ------------------------------------------------------------------------ how it is used

    @property
    def num_densities(self) -> int:
        """How many Gaussians describe the features: one, or one per class."""
        return 1

    @property
    def density_prior(self) -> Prior | None:
        """The prior of densities of features, if the head has one."""
        return None

    @property
    def logit_layer(self) -> tuple[Tensor, Tensor] | None:
        """Weights (K, N) and biases (K,) of mean logits, if they are linear in the features."""
        return None

    def prepare(
        self,
        data: Iterable[tuple[Tensor, Tensor | None]],
        *,
        new: bool,
        total: Callable[[Tensor], Tensor],
    ) -> None:
        """Do what is to be done once before training; nothing, unless overridden.

        Args:
            data: batches of targets and weights of the training data, read as far as needed. The
                first may be all of them.
            new: whether the head may be initialised anew.
            total: sums a tensor over the processes that see different data.
        """

    @classmethod
    def from_linear(
        cls: type[AnyHead], layer: nn.Linear, cached: Cached, *, num_data: float, **options: Any
    ) -> AnyHead:
        """A head to replace a trained linear layer, initialised at its weights.

        Args:
            layer: the layer.
            cached: features, targets and weights of the training data, one row per example.
            num_data: T, the number of training examples.
            options: of the head.
        """
        factory: dict[str, Any] = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        num_outputs = max(layer.out_features, 1 + cls.takes_classes)  # one logit is two classes
        made = cls(layer.in_features, num_outputs, num_data=num_data, **factory | options)
        made.start_from(layer)
        return made

    @torch.no_grad()
    def start_from(self, layer: nn.Linear) -> None:
        """Set the mean to the trained weights of a linear layer, and its bias if there is one."""
        self._check_assignable()
        self.mean.copy_(weights_of(layer, self))

    def fit_features(
        self,
        features: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        max_passes: int = 50,
        tolerance: float = 1e-4,
        max_memory_bytes: int = 2**31,
        report: Callable[[float], None] | None = None,
    ) -> None:
        """Fit on fixed features as well as can be, in a few passes over them.

        Args:
            features: of all the data, (*batch, num_features), in memory or memory-mapped.
            target: as in `forward`.
            weight: as in `forward`.
            max_passes: maximum number of passes over the data.
            tolerance: stops when the loss falls by less, in nats per example.
            max_memory_bytes: of what is computed from the features.
            report: called with the loss after each pass, where there are several.
        """
        raise TypeError(
            f"a {type(self).__name__} has no solver for fixed features; train it on them with "
            "lastlayer.fit(head, (features, target))"
        )

    def extra_repr(self) -> str:
        """Sizes and options, for printing."""
        return (
            f"num_features={self.num_features}, num_outputs={self.num_outputs}, "
            f"num_data={self.num_data}, bias={self.bias}, prior={self.prior}"
        )
