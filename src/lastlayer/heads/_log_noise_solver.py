"""The solver of a heteroscedastic head on fixed features: alternating closed form and Newton."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import check_count, check_finite, check_positive, check_target, check_weights
from .._sharding import load_whole, whole
from ..functional import (
    conjugate,
    expected_heteroscedastic_log_density,
    expected_log_noise_prior,
    expected_root_precision,
    inverse_wishart_exponent,
)
from .regression import Regression

if TYPE_CHECKING:
    from .heteroscedastic import HeteroscedasticRegression

CHUNK = 2**22  # features converted to double precision at a time
MIN_SHARE = 1 / 16  # of a step towards the stationary S', below which it is no use


class Moments(NamedTuple):
    """What the loss depends on, (T, K) each."""

    squares: Tensor  # (y − W̄φ)² + φᵀS_kφ
    log_mean: Tensor
    log_variance: Tensor


@torch.no_grad()
def solve(
    head: HeteroscedasticRegression,
    features: Tensor,
    target: Tensor,
    weight: Tensor | None,
    max_passes: int,
    tolerance: float,
    report: Callable[[float], None],
) -> None:
    """Minimise the loss of a head on fixed features; see `fit_features` for the arguments."""
    check_count("max_passes", max_passes)
    check_positive("tolerance", tolerance)
    fit = _Fit(head, features, target, weight)
    if head.log_noise.fresh:
        fit.begin_with_constant_noise(features, target, weight)
    loss, share = fit.loss(), 1.0
    report(loss)
    for _ in range(max_passes - 1):
        before = copy.deepcopy(fit.head.state_dict())
        fit.move_noise(share)
        fit.move_weights()
        improved = loss - fit.loss()
        loss -= max(improved, 0.0)
        report(loss)
        if not improved >= 0:
            fit.head.load_state_dict(before)
            share /= 2
        if share < MIN_SHARE or 0 <= improved < tolerance:
            break
    fit.head.initial_digest.zero_()
    fit.head.log_noise.initial_digest.zero_()
    load_whole(head, fit.head.state_dict())


@torch.no_grad()
def update(
    head: HeteroscedasticRegression, features: Tensor, target: Tensor, weight: Tensor | None
) -> None:
    """Condition the weights of a head on new data, given its noise."""
    if not head.covariance.full or (head.covariance.shared and head.num_outputs > 1):
        raise TypeError(
            "with noise that depends on the input every output has its own posterior, which "
            f"{type(head.covariance).__name__} cannot carry on: use covariance='dense'"
        )
    fit = _Fit(head, features, target, weight)
    fit.add_to_weights()
    fit.head.initial_digest.zero_()
    load_whole(head, fit.head.state_dict())


class _Fit:
    """A copy of a head in double precision, and the data."""

    def __init__(
        self,
        head: HeteroscedasticRegression,
        features: Tensor,
        target: Tensor,
        weight: Tensor | None,
    ) -> None:
        batch_shape, num_outputs = features.shape[:-1], head.num_outputs
        if features.numel() == 0 or features.shape[-1] != head.num_features:
            raise ValueError(
                f"features must be (*batch, {head.num_features}) with at least one example, "
                f"got shape {tuple(features.shape)}"
            )
        self.head = whole(head).double().requires_grad_(False).to(features.device)
        self.features = features.reshape(-1, head.num_features)
        target = check_target(target, batch_shape, num_outputs).double()
        weights = torch.ones_like(target)
        if weight is not None:
            weights = head._check_weight(weight, batch_shape).double().expand_as(target)
            check_weights(weights)
            target = target.where(weights != 0, 0.0)
        check_finite("features", features)
        check_finite("targets", target)
        self.target, self.weights = (t.reshape(-1, num_outputs) for t in (target, weights))
        # how much a unit of the data's sums counts beside the divergence
        self.scale = head.num_data / len(self.features) / head.prior.kl_weight

    def begin_with_constant_noise(
        self, features: Tensor, target: Tensor, weight: Tensor | None
    ) -> None:
        """The exact fit of homoscedastic regression."""
        head = self.head
        constant = Regression(
            head.num_features,
            head.num_outputs,
            num_data=head.num_data,
            covariance=lambda *sizes: copy.deepcopy(head.covariance),
            prior=head.prior,
            bias=head.bias,
            device=head.mean.device,
            dtype=head.mean.dtype,
        )
        constant.prior_mean = head.prior_mean
        constant.fit_exact(features.double(), target, weight, estimate_noise=True)
        head.mean.copy_(constant.mean)
        head.covariance.load_state_dict(constant.covariance.state_dict())
        head.log_noise.set_constant(constant.noise.variance())

    def chunks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Rows, prepared features and those of the noise, a chunk at a time."""
        rows = max(1, CHUNK // self.features.shape[-1])
        for start in range(0, len(self.features), rows):
            part = slice(start, start + rows)
            inputs = self.head._inputs(self.features[part].double())
            yield part, inputs, self.head.log_noise.inputs(inputs, self.head)

    def moments(self) -> Moments:
        head, parts = self.head, []
        for rows, inputs, noise_inputs in self.chunks():
            error = self.target[rows] - F.linear(inputs, head.mean)
            parts.append(
                (
                    error.square() + head.covariance.quadratic(inputs),
                    F.linear(noise_inputs, head.log_noise.mean),
                    head.log_noise.covariance.quadratic(noise_inputs),
                )
            )
        return Moments(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def loss(self) -> float:
        """−ELBO/T."""
        head = self.head
        squares, log_mean, log_variance = self.moments()
        precision = expected_root_precision(log_mean, log_variance)
        terms = expected_heteroscedastic_log_density(
            torch.zeros_like(squares), squares, log_mean, precision
        )
        prior = head.prior
        priors = expected_log_noise_prior(log_mean, precision, prior.noise_dof, prior.noise_scale)
        kl = sum(
            layer._divergence(
                layer._deviation(), layer.covariance.trace().sum(), layer.covariance.logdet().sum()
            )
            for layer in (head, head.log_noise)
        )
        total = (self.weights * (terms + priors / head.num_data)).sum() / len(self.features)
        return float(prior.kl_weight * kl / head.num_data - total)

    def move_noise(self, share: float) -> None:
        """A Newton step of the mean of the log-noise, and its S' for that mean.

        Curvatures are at least those of errors as large as expected, so that the step is short
        where errors are tiny; the line search is over a concave function.
        """
        layer, prior = self.head.log_noise, self.head.prior
        exponent = inverse_wishart_exponent(prior.noise_dof, self.head.num_outputs)
        count = 1 + exponent / self.head.num_data
        found = self.moments()
        squares = found.squares + prior.noise_scale / self.head.num_data
        weights, variance = 0.5 * self.scale * self.weights, layer.prior_variance

        def ratios(log_mean: Tensor) -> Tensor:
            """Expected squared errors in units of the noise."""
            return squares * (0.5 * found.log_variance - log_mean).exp()

        now = ratios(found.log_mean)
        _, cross = self._sums(weights * (now - count))
        gradient = cross - layer._deviation() / variance
        grams, _ = self._sums(weights * now.clamp(min=count))
        direction = torch.linalg.solve(
            grams + torch.diag(1 / variance), gradient.unsqueeze(-1)
        ).squeeze(-1)
        moved = torch.cat([F.linear(psi, direction) for _, _, psi in self.chunks()])

        def value(length: float) -> float:
            log_mean = found.log_mean + length * moved
            deviation = layer._deviation() + length * direction
            data = (weights * (count * log_mean + ratios(log_mean))).sum()
            return float(-data - 0.5 * (deviation.square() / variance).sum())

        length, present = 1.0, value(0.0)
        while not value(length) >= present and length > 1e-6:
            length /= 2
        layer.mean.add_(length * direction)
        grams, _ = self._sums(weights * ratios(found.log_mean + length * moved))
        wanted = grams + torch.diag(1 / variance)
        if share < 1:
            wanted = torch.lerp(layer.covariance.precision().expand_as(wanted), wanted, share)
        layer.covariance.project(wanted)

    def move_weights(self) -> None:
        """The exact posterior of the weights, given that of the noise."""
        head = self.head
        variance = head.prior_variance
        if head.learns_prior:
            variance = head.anticipated_variance(variance)
        prior_mean = head._prior_mean()
        data = self._information(self.scale, prior_mean)
        ones = torch.ones_like(data.counts)
        precision = conjugate.posterior_precision(data.gram, ones, variance)
        head.covariance.project(precision)
        head.mean.copy_(prior_mean + conjugate.posterior_mean(precision, ones, data.cross))

    def add_to_weights(self) -> None:
        """The posterior of the weights given these data too, and the noise."""
        head = self.head
        mean = head._prior_mean() if head.fresh else head.mean.clone()
        data = self._information(1 / head.prior.kl_weight, mean)
        ones = torch.ones_like(data.counts)
        if head.fresh:
            precision = conjugate.posterior_precision(data.gram, ones, head.prior_variance)
        else:
            precision = head.covariance.precision() + data.gram
        head.covariance.project(precision)
        head.mean.copy_(mean + conjugate.posterior_mean(precision, ones, data.cross))

    def _information(self, scale: float, mean: Tensor) -> conjugate.RegressionStatistics:
        """Statistics about a mean, with precisions of the noise and counts times a scale."""
        _, log_mean, log_variance = self.moments()
        weights = scale * self.weights * (0.5 * log_variance - log_mean).exp()
        data = None
        for rows, inputs, _ in self.chunks():
            part = conjugate.regression_statistics(inputs, self.target[rows], weights[rows], mean)
            data = part if data is None else data.merge(part)
        assert data is not None
        return data

    def _sums(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_t w_tkψψᵀ, (K, M, M), and Σ_t w_tkψ, (K, M)."""
        grams, sums = [], []
        for rows, _, inputs in self.chunks():
            part = weights[rows]
            grams.append(torch.stack([inputs.mT @ (inputs * w[:, None]) for w in part.mT]))
            sums.append(part.mT @ inputs)
        return torch.stack(grams).sum(0), torch.stack(sums).sum(0)
