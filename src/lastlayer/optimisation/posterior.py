"""What a surrogate says: joint posteriors, conditioned and drawn from, as BoTorch asks for them."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from botorch.models.model import FantasizeMixin, Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.constraints import Positive
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from .conditioning import Observations, Values
from .data import Data, check_inputs, joined
from .distribution import as_distribution

AnySurrogate = TypeVar("AnySurrogate", bound="Surrogate")


class Surrogate(Model, FantasizeMixin):
    """A network with a Bayesian last layer, and observations of which its posterior knows.

    Attributes:
        network: the `lastlayer.Network`, whose head is a `lastlayer.Regression` with a bias.
        outputs: indices of its outputs that this model has.
    """

    network: Any
    outcome_transform: Any
    outputs: list[int]
    _data: Data
    _targets: Tensor  # transformed outcomes, (*batch, n, m)
    _updates: tuple[Observations, ...] = ()

    def features(self, inputs: Tensor) -> Tensor:
        """Features (*batch, num_features) of transformed inputs (*batch, d)."""
        flat = self.network.backbone(inputs.reshape(-1, inputs.shape[-1]))
        return flat.reshape(*inputs.shape[:-1], flat.shape[-1])

    def weighted_features(self, inputs: Tensor) -> Tensor:
        """Features of inputs that have a weight, that of the bias too, (*batch, num_features + 1).

        The inputs are as given to `posterior`.
        """
        return F.pad(self.features(self.transform_inputs(inputs)), (0, 1), value=1.0)

    def _values(self, inputs: Tensor) -> Values:
        """Joint values at transformed inputs (*batch, q, d), given everything that was observed."""
        joint = self.network.head.joint(self.features(inputs))
        values = Values(joint.mean, joint.factor).select(self.outputs)
        for update in self._updates:
            values = update.condition(values)
        return values

    def _noise_variance(self) -> Tensor:
        """Of each output, (m,), in units of transformed outcomes."""
        return self.network.head.noise.variance()[self.outputs]

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,  # noqa: N803
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> Any:
        """The joint posterior at X, (*batch, q, d): a `GPyTorchPosterior` over q points, m outputs.

        Args:
            X: inputs, whose leading dimensions are broadcast with `batch_shape`.
            output_indices: of the outputs that are wanted; all unless given.
            observation_noise: whether to add noise, or the variance of the noise to add, in units
                of transformed outcomes, broadcast with (*batch, q, m).
            posterior_transform: of BoTorch.
        """
        if output_indices is not None:
            some = self.subset_output(output_indices)
            return some.posterior(X, None, observation_noise, posterior_transform)
        check_inputs(X, self._data)
        self.eval()
        inputs = self.transform_inputs(X)
        noise: Tensor | None = None
        if isinstance(observation_noise, Tensor):
            noise = observation_noise.expand(*X.shape[:-1], self.num_outputs)
        elif observation_noise:
            noise = self._noise_variance().expand(*X.shape[:-1], self.num_outputs)
        values = self._values(inputs)
        transform = getattr(self, "outcome_transform", None)
        if transform is not None and transform._is_linear:  # keeps the root of the covariance
            location = transform.untransform(torch.zeros_like(values.mean), X=inputs)[0]
            scale = transform.untransform(torch.ones_like(values.mean), X=inputs)[0] - location
            values = values.affine(location, scale)
            noise = None if noise is None else noise * scale.square()
        posterior: Any = GPyTorchPosterior(as_distribution(values, noise))
        if transform is not None and not transform._is_linear:
            posterior = transform.untransform_posterior(posterior, X=inputs)
        return posterior if posterior_transform is None else posterior_transform(posterior, X=X)

    def condition_on_observations(
        self: AnySurrogate,
        X: Tensor,  # noqa: N803
        Y: Tensor,  # noqa: N803
        noise: Tensor | None = None,
        **kwargs: Any,
    ) -> AnySurrogate:
        """The model given further observations, by a change of rank n to its last layer.

        Exact, and differentiable with respect to inputs and outcomes. Features, noise and
        transforms stay as they are.

        Args:
            X: inputs, (*batch, n, d).
            Y: outcomes, (*more, *batch, n, m).
            noise: variances of their noise in units of transformed outcomes, of the shape of Y.
            kwargs: for other models of BoTorch; ignored.
        """
        check_inputs(X, self._data)
        self.eval()
        target = self._transform_outcomes(X, Y)
        variance = self._noise_variance() if noise is None else noise
        values = self._values(self.transform_inputs(X))
        update = Observations.of(values, target, variance.expand_as(values.mean))
        made = self._variant()
        made._updates = (*self._updates, update)
        made._data = Data(self._data.inputs, self._data.outcomes).join(Data(X, Y))
        made._targets = joined(self._targets, target)
        return made

    def _transform_outcomes(
        self,
        X: Tensor,  # noqa: N803
        Y: Tensor,  # noqa: N803
        Yvar: Tensor | None = None,  # noqa: N803
        part: int = 0,
    ) -> Any:
        """Outcomes, or with part=1 the variances of their noise, transformed."""
        if not hasattr(self, "outcome_transform"):
            return (Y, Yvar)[part]
        return self.outcome_transform(Y, Yvar, X=self.transform_inputs(X))[part]

    def _variant(self: AnySurrogate) -> AnySurrogate:
        """Another model of the same network and data, to be changed."""
        made = copy.copy(self)
        made._modules = dict(self._modules)
        return made

    def subset_output(self: AnySurrogate, idcs: list[int]) -> AnySurrogate:
        """The model of some outputs, of the same network."""
        made = self._variant()
        kept = [range(self.num_outputs)[index] for index in idcs]
        made.outputs = [self.outputs[index] for index in kept]
        made._data, made._targets = self._data.select(kept), self._targets[..., kept]
        made._updates = tuple(update.select(kept) for update in self._updates)
        if hasattr(self, "outcome_transform"):
            made.outcome_transform = self.outcome_transform.subset_output(kept)
        return made

    @torch.no_grad()
    def sample_weights(self, sample_shape: torch.Size) -> Tensor:
        """Draws of the weights, (*sample_shape, *batch_shape, m, num_features + 1).

        Products with `weighted_features` are functions drawn from the posterior of transformed
        outcomes.
        """
        head = self.network.head
        eye = torch.eye(head.width, dtype=head.mean.dtype, device=head.mean.device)
        roots = head.covariance.root_products(eye).movedim(0, -2)[self.outputs]  # R_kᵀ, (m, N, M)
        shape = (*sample_shape, *self.batch_shape, self.num_outputs, roots.shape[-1])
        base = torch.randn(shape, dtype=roots.dtype, device=roots.device)
        for update in reversed(self._updates):
            base = update.draw(base)
        return head.mean[self.outputs] + (roots @ base.unsqueeze(-1)).squeeze(-1)

    # ------------------------------------------------------------------------ what BoTorch asks

    @property
    def num_outputs(self) -> int:
        """The number of outputs, m."""
        return len(self.outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """The leading dimensions of the observations that the model was conditioned on."""
        return torch.broadcast_shapes(*(update.batch_shape for update in self._updates), ())

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """Inputs as given, (*batch, n, d), in a tuple of one."""
        return (self._data.inputs,)

    @property
    def train_targets(self) -> Tensor:
        """Transformed outcomes, (*batch, n), or (*batch, m, n) if there are several outputs."""
        return self._targets.squeeze(-1) if self.num_outputs == 1 else self._targets.mT

    @property
    def likelihood(self) -> GaussianLikelihood:
        """The noise of transformed outcomes; a copy, of which changes have no effect."""
        variance = self._noise_variance()
        batch_shape = torch.Size() if len(variance) == 1 else variance.shape
        likelihood = GaussianLikelihood(batch_shape=batch_shape, noise_constraint=Positive())
        likelihood.to(variance).noise = variance if len(variance) == 1 else variance.unsqueeze(-1)
        return likelihood.requires_grad_(False)

    def _set_transformed_inputs(self) -> None:
        """Nothing: `train_inputs` are always as given."""

    def _revert_to_original_inputs(self) -> None:
        """Nothing: `train_inputs` are always as given."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move or cast the model, and its observations with it."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._data = self._data.map(fn)
        self._targets = fn(self._targets)
        self._updates = tuple(Observations(*map(fn, update)) for update in self._updates)
        return self
